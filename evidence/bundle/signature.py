"""Signing a bundle with a key of one's own, and checking such a signature.

A DSSE envelope (github.com/secure-systems-lab/dsse, protocol version 1) around an in-toto statement, signed with
Ed25519. A signature says that the holder of a key stood by this content; whose key it is, one must know from
elsewhere. The package `cryptography` is loaded when it is needed and comes with the extra `sign`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.bundle.format.layout import BUNDLE_MANIFEST
from evidence.bundle.format.rules import BAD_KEY, BAD_OUTPUT, BAD_SIGNATURE, OTHER_CONTENT_SIGNED, refusal
from evidence.bundle.verdict import SignatureCheck, Verdict
from evidence.run.extras import NOT_INSTALLED, install_command
from evidence.run.hashes import sha256_file
from evidence.run.write import write_text
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import problem_of
from schemas.problems.visible import visible
from schemas.reading.parse import parse_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://trainproof.example/bundle/v1"
MOST_BYTES = 1 << 20
"""Largest signature or key that is read."""


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A signature that was made."""

    path: Path
    """The signature file."""
    key_id: str
    """Which key made it: `SHA256:` and the hash of the public key."""


def new_key(path: Path) -> str:
    """Write a new private key, readable by its owner alone, and its public key beside it; return the key's id.

    Raises:
        ProblemError: Exit code 2: a file is there already or cannot be written, or `cryptography` is not installed.
    """
    public_path = public_of(path)
    if there := [each for each in (path, public_path) if each.exists()]:
        problems = [
            refusal(BAD_OUTPUT, str(each), "This file exists, and a key is never overwritten.") for each in there
        ]
        raise ProblemError(problems, exit_code=2)
    ed25519, serialization = _modules()
    key = ed25519.Ed25519PrivateKey.generate()
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key.private_bytes(serialization.Encoding.PEM, *form))
        pem = serialization.PublicFormat.SubjectPublicKeyInfo
        public_path.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, pem))
    except OSError as error:
        for each in (path, public_path):
            each.unlink(missing_ok=True)  # neither was there before
        what = f"The key cannot be written: {error.strerror or error}."
        raise ProblemError([refusal(BAD_OUTPUT, str(path), what)], exit_code=2) from None
    return _key_id(key.public_key())


def public_of(path: Path) -> Path:
    """Return where the public key of a private key lies: `me.key` and `me.key.pub`."""
    return Path(f"{path}.pub")


def signature_of(bundle: Path) -> Path:
    """Return where the signature of a bundle lies: `a.zip` and `a.zip.sig`."""
    return Path(f"{bundle}.sig")


def sign_bundle(verdict: Verdict, key: Path) -> Signed:
    """Sign a bundle that was verified and holds; an older signature beside it is replaced.

    Raises:
        ProblemError: Exit code 1: the bundle does not hold. Exit code 2: the key cannot be used.
    """
    private = _private_key(key)
    if not verdict.ok:
        raise ProblemError(verdict.findings, exit_code=1)
    payload = json.dumps(_statement(verdict), ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    key_id = _key_id(private.public_key())
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(private.sign(_encoded(payload))).decode()}],
    }
    path = signature_of(verdict.path)
    try:
        write_text(path, json.dumps(envelope, indent=2) + "\n")
    except OSError as error:
        what = f"The signature cannot be written: {error.strerror or error}."
        raise ProblemError([refusal(BAD_OUTPUT, str(path), what)], exit_code=2) from None
    return Signed(path=path, key_id=key_id)


def check_signature(verdict: Verdict, signature: Path, public_key: Path) -> SignatureCheck:
    """Return whether a signature is one of this bundle by this key.

    Raises:
        ProblemError: Exit code 2: the public key cannot be used, or `cryptography` is not installed.
    """
    public = _public_key(public_key)
    key_id = _key_id(public)
    statement = _signed_statement(signature, public)
    if isinstance(statement, Problem):
        return SignatureCheck(path=signature, key_id=key_id, problems=(statement,))
    return SignatureCheck(path=signature, key_id=key_id, problems=tuple(_other_content(verdict, signature, statement)))


def _statement(verdict: Verdict) -> dict[str, Any]:
    """Return what is signed: the zip by its hash, its content by its digest, what it states, the grades of its runs."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": visible(verdict.path.name), "digest": {"sha256": sha256_file(verdict.path)}}],
        "predicateType": PREDICATE,
        "predicate": {
            "content_sha256": verdict.content_sha256,
            "bundle_manifest_sha256": verdict.manifest_sha256,
            "runs": [{"run_id": run.run_id, "grade": run.grade} for run in verdict.runs],
        },
    }


def _signed_statement(path: Path, public: Any) -> dict[str, Any] | Problem:
    """Return the statement of an envelope that this key signed, or why there is none."""
    try:
        content = _content(path)
    except OSError as error:
        return refusal(BAD_SIGNATURE, str(path), f"The signature cannot be read: {error.strerror or error}.")
    envelope = _parsed(content)
    payload = _decoded(envelope.get("payload"))
    signatures = envelope.get("signatures")
    if envelope.get("payloadType") != PAYLOAD_TYPE or payload is None or not isinstance(signatures, list):
        return refusal(BAD_SIGNATURE, str(path), "This is no DSSE envelope of an in-toto statement.")
    if not any(_is_signed(payload, each, public) for each in signatures):
        return refusal(BAD_SIGNATURE, str(path), "No signature in it was made with this key for this content.")
    return _parsed(payload)


def _other_content(verdict: Verdict, path: Path, statement: dict[str, Any]) -> Sequence[Problem]:
    """Return in what a statement that was signed speaks of something else than this bundle."""
    if statement.get("_type") != STATEMENT or statement.get("predicateType") != PREDICATE:
        return [refusal(OTHER_CONTENT_SIGNED, str(path), "What was signed is no statement about a bundle.")]
    predicate = statement.get("predicate")
    predicate = predicate if isinstance(predicate, dict) else {}
    signed = predicate.get("content_sha256")
    # The content digest, not the zip's hash: packed again, it is the same evidence, and `verify` says so.
    if not isinstance(signed, str) or signed != verdict.content_sha256:
        actual = f"content digest {verdict.content_sha256}" if verdict.content_sha256 else "no digest that holds"
        what = f"The signature is for the content digest {signed}; this bundle has {actual}."
        return [refusal(OTHER_CONTENT_SIGNED, str(path), what)]
    # Signatures made before it was signed too say nothing of it.
    if predicate.get("bundle_manifest_sha256", verdict.manifest_sha256) != verdict.manifest_sha256:
        what = f"The signature is for another {BUNDLE_MANIFEST}: label, version, grades or reasons were changed."
        return [refusal(OTHER_CONTENT_SIGNED, str(path), what)]
    return []


def _encoded(payload: bytes) -> bytes:
    """Return what is signed in DSSE: `DSSEv1`, length and text of the type, length and text of the payload."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _is_signed(payload: bytes, signature: Any, public: Any) -> bool:
    given = _decoded(signature.get("sig")) if isinstance(signature, dict) else None
    if given is None:
        return False
    invalid = importlib.import_module("cryptography.exceptions").InvalidSignature
    try:
        public.verify(given, _encoded(payload))
    except invalid:
        return False
    return True


def _parsed(content: bytes) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    value = parse_json(content, file="").value
    return value if isinstance(value, dict) else {}


def _decoded(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def _private_key(path: Path) -> Any:
    ed25519, serialization = _modules()
    return _key(path, lambda pem: serialization.load_pem_private_key(pem, None), ed25519.Ed25519PrivateKey, "private")


def _public_key(path: Path) -> Any:
    ed25519, serialization = _modules()
    return _key(path, serialization.load_pem_public_key, ed25519.Ed25519PublicKey, "public")


def _key(path: Path, load: Any, kind: type, word: str) -> Any:
    """Return an Ed25519 key from a PEM file.

    Raises:
        ProblemError: Exit code 2: there is none in the file.
    """
    unsupported = importlib.import_module("cryptography.exceptions").UnsupportedAlgorithm
    try:
        key = load(_content(path))
    except OSError as error:
        raise _bad_key(path, f"The key cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, unsupported):
        key = None
    if not isinstance(key, kind):
        raise _bad_key(path, f"This is not a {word} key of Ed25519 in PEM form, or a password locks it.")
    return key


def _content(path: Path) -> bytes:
    """Return what a file holds; nothing of one that is too large for a key or a signature."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    return content if len(content) <= MOST_BYTES else b""


def _bad_key(path: Path, what: str) -> ProblemError:
    return ProblemError([refusal(BAD_KEY, str(path), what)], exit_code=2)


def _key_id(public: Any) -> str:
    return f"SHA256:{hashlib.sha256(public.public_bytes_raw()).hexdigest()}"


def _modules() -> tuple[Any, Any]:
    """Return the modules of `cryptography` for Ed25519 and for key files.

    Raises:
        ProblemError: Exit code 2: it is not installed.
    """
    try:
        ed25519 = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
        return ed25519, importlib.import_module("cryptography.hazmat.primitives.serialization")
    except ImportError:
        what = "Signatures need the package `cryptography`, which is not installed."
        then = f"Install it: {install_command('sign')}."
        problem = problem_of(NOT_INSTALLED, file="", what=what, why=None, next=then)
        raise ProblemError([problem], exit_code=2) from None
