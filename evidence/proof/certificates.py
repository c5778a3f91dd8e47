"""Root certificates of time authorities, and trusted roots of Sigstore, as files hold them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from evidence.proof.keys import limited_content, needed_module
from evidence.proof.rules import BAD_TRUST, refusal
from schemas.problems.problem import ProblemError


def certificate_of(path: Path) -> tuple[str, str]:
    """Return the first certificate in a PEM file, as PEM, and the SHA-256 of its DER form.

    Raises:
        ProblemError: Exit code 2: it holds none, or `cryptography` is not installed.
    """
    certificate = loaded_certificate(_content(path), str(path))
    serialization = needed_module("cryptography.hazmat.primitives.serialization", "Certificates", extra="sign")
    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return pem.decode("ascii"), hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def loaded_certificate(pem: bytes, file: str) -> Any:
    """Return the certificate in the text of a PEM file; `file` states where the text is from.

    Raises:
        ProblemError: Exit code 2: the file does not hold one, or `cryptography` is not installed.
    """
    x509 = needed_module("cryptography.x509", "Certificates", extra="sign")
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ProblemError([refusal(BAD_TRUST, file, "This is not a certificate in PEM form.")], exit_code=2) from None


def roots_of(text: bytes, file: str) -> list[Any]:
    """Return the trusted roots of Sigstore in a text: one JSON document, or one a line as `gh` writes them.

    Raises:
        ProblemError: Exit code 2: the file does not hold one, or `sigstore` is not installed.
    """
    models = needed_module("sigstore.models", "Attestations", extra="witness")
    inner = needed_module("sigstore_models.trustroot.v1", "Attestations", extra="witness")
    errors = needed_module("sigstore.errors", "Attestations", extra="witness")
    try:
        return [models.TrustedRoot(inner.TrustedRoot.from_json(part)) for part in json_parts(text)]
    except (ValueError, errors.Error):
        what = "This is not a trusted root of Sigstore in JSON."
        raise ProblemError([refusal(BAD_TRUST, file, what)], exit_code=2) from None


def json_parts(text: bytes) -> list[bytes]:
    """Return the JSON documents of a text: the whole of it, or its lines where each is one."""
    lines = [line for line in text.splitlines() if line.strip()]
    each_is_one = len(lines) > 1 and all(
        line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}") for line in lines
    )
    return lines if each_is_one else [text]


def _content(path: Path) -> bytes:
    try:
        return limited_content(path)
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
        raise ProblemError([refusal(BAD_TRUST, str(path), what)], exit_code=2) from None
