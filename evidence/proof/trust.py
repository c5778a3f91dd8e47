"""Whom this user trusts: people by their keys, time authorities and Sigstore instances by their roots.

The list lies in the user's own folder, outside of every run and root, so no one who sends a run can put himself on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from evidence.proof.envelope import read_envelope
from evidence.proof.keys import PublicKey, limited_content, needed_module, public_key, public_key_in
from evidence.proof.rules import refusal
from evidence.run import seal
from evidence.run.hashes import sha256_file
from evidence.run.write import not_written, write_json
from schemas.catalog import VERSION
from schemas.formats import format_value, join_words, visible
from schemas.problems import Problem, ProblemError
from schemas.validate import read_document

Kind = Literal["key", "time authority", "attestation root"]

LONGEST_NAME = 100
"""Characters of a name on the list."""
OUR_OWN = {"you", "github", "nobody"}
"""Names that reasons of grades give to the reader, to workflows and to strangers; no one else may have them."""


@dataclass(frozen=True, kw_only=True)
class TrustedEntry:
    """One entry of the trust list.

    Attributes:
        kind: What it is.
        name: Whose it is, in the user's words.
        id: `SHA256:` and the hash of what it is.
        content: The key or certificate in PEM form, or the trusted root in JSON.
        added_at: When the user added it.
    """

    kind: Kind
    name: str
    id: str
    content: str
    added_at: str


def trust_path() -> Path:
    """Return the file of this user's trust list."""
    return seal.user_folder() / "trust.json"


def trusted_entries(kind: Kind | None = None) -> tuple[TrustedEntry, ...]:
    """Return the trust list, or the entries of one kind; nothing where there is no list.

    Raises:
        ProblemError: Exit code 2: the list cannot be read or is not valid.
    """
    path = trust_path()
    if not path.exists():
        return ()
    document = read_document(path, "trust")
    if document.value is None or document.problems:
        what = f"The trust list is not valid: {document.problems[0].what if document.problems else 'it is empty.'}"
        raise ProblemError([refusal("TP860", str(path), what)], exit_code=2)
    entries = [TrustedEntry(**each) for each in document.value["trusted"]]
    return tuple(each for each in entries if kind in (None, each.kind))


def trust(file: Path, name: str, now: datetime) -> TrustedEntry:
    """Put a key, a certificate or a trusted root on the list; one that is there already gets the new name.

    Raises:
        ProblemError: Exit code 2: the file holds none of these, the name cannot be kept, or the list not be written.
    """
    is_taken = name.strip().casefold() in OUR_OWN
    if not name.strip() or len(name) > LONGEST_NAME or visible(name) != name or "\n" in name or is_taken:
        what = f"{format_value(name)} cannot be a name on the trust list."
        expected = f"one line of at most {LONGEST_NAME} characters, and not {join_words(sorted(OUR_OWN), last='or')}"
        raise ProblemError([refusal("TP859", "", what, expected=expected, next="Give another `--name`.")], exit_code=2)
    kind, identity, content = _recognise(file)
    added_at = now.isoformat(timespec="seconds")
    entry = TrustedEntry(kind=kind, name=name.strip(), id=identity, content=content, added_at=added_at)
    _write([*(each for each in trusted_entries() if each.id != identity), entry])
    return entry


def distrust(name_or_id: str) -> tuple[TrustedEntry, ...]:
    """Take entries off the list by their name or their id, and return them.

    Raises:
        ProblemError: Exit code 2: nothing on the list has this name or id, or the list cannot be written.
    """
    entries = trusted_entries()
    gone = tuple(each for each in entries if name_or_id in (each.name, each.id))
    if not gone:
        names = ", ".join(each.name for each in entries) or "nobody"
        what = f"{format_value(name_or_id)} is not on the trust list, which holds {names}."
        then = "Name an entry of `trainproof trust list`."
        raise ProblemError([refusal("TP859", "", what, next=then)], exit_code=2)
    _write([each for each in entries if each not in gone])
    return gone


def trusted_keys() -> dict[PublicKey, str]:
    """Return the keys on the list with the names of their holders."""
    return {public_key_in(each.content.encode(), trust_path()): each.name for each in trusted_entries("key")}


def trusted_signers(content: Path, signature: Path) -> Sequence[str]:
    """Return the names of the trusted keys that signed a file; none where there is no signature that holds.

    What was signed must be a statement whose subject is this file: its SHA-256 is compared.

    Raises:
        ProblemError: Exit code 2: the trust list cannot be read, or `cryptography` is not installed.
    """
    if not signature.is_file():
        return ()
    keys = trusted_keys()
    envelope = read_envelope(signature) if keys else None
    if envelope is None or isinstance(envelope, Problem):
        return ()
    subjects = envelope.statement.get("subject")
    digests = [each.get("digest") for each in subjects if isinstance(each, dict)] if isinstance(subjects, list) else []
    if {"sha256": sha256_file(content)} not in digests:
        return ()
    return tuple(keys[key] for key in envelope.signed_by(tuple(keys)))


def _recognise(file: Path) -> tuple[Kind, str, str]:
    """Return what a file holds that can be trusted: its kind, id and content in the form that is kept."""
    try:
        text = limited_content(file).decode("utf-8", "replace")
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
        raise ProblemError([refusal("TP859", str(file), what)], exit_code=2) from None
    if "BEGIN CERTIFICATE" in text:
        pem, digest = certificate_of(file)
        return "time authority", f"SHA256:{digest}", pem
    if text.lstrip().startswith("{"):
        roots_of(text.encode(), str(file))
        return "attestation root", f"SHA256:{hashlib.sha256(text.encode()).hexdigest()}", text
    if "PRIVATE KEY" in text:
        what = "This is a private key: only its owner may have it, and nobody else is trusted by it."
        then = f"Add the public key, for example {file}.pub."
        raise ProblemError([refusal("TP859", str(file), what, next=then)], exit_code=2)
    key = public_key(file)
    return "key", key.key_id, key.pem


def _write(entries: Sequence[TrustedEntry]) -> None:
    path = trust_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"schema_version": VERSION, "trusted": [asdict(each) for each in entries]})
    except OSError as error:
        raise not_written(error, path, what="The trust list") from None


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
        raise ProblemError([refusal("TP859", file, "This is not a certificate in PEM form.")], exit_code=2) from None


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
        raise ProblemError([refusal("TP859", file, what)], exit_code=2) from None


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
        raise ProblemError([refusal("TP859", str(path), what)], exit_code=2) from None
