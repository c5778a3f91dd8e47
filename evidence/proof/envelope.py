"""Signature files: one DSSE envelope around an in-toto statement, with the signatures of one or several people.

DSSE, protocol version 1 (github.com/secure-systems-lab/dsse): what is signed is the type and the text of the payload,
so several keys can sign one statement. Whose key made a signature is looked up among the keys, never of the file's
`keyid`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.proof.keys import PrivateKey, PublicKey, limited_content
from evidence.proof.rules import refusal
from evidence.run.write import write_text
from schemas.formats import quantity, visible
from schemas.problems import Problem, ProblemError
from schemas.reading import parse_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
MOST_SIGNATURES = 64
"""Signatures of one file that are tried; a stranger's file may hold any number."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """One signature of an envelope.

    Attributes:
        key_id: The key that it states made it; a hint that nothing relies on.
        value: Its bytes.
    """

    key_id: str
    value: bytes


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What a signature file holds.

    Attributes:
        payload: The statement's text, as it was signed.
        signatures: Those in the file.
    """

    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def statement(self) -> dict[str, Any]:
        """The statement, or nothing where the payload is not one."""
        value = parsed_object(self.payload)
        return value if value.get("_type") == STATEMENT else {}

    @property
    def stated_at(self) -> str | None:
        """When the statement states that it was made; the signer can only be believed. None: it does not state it."""
        time = predicate_of(self.statement).get("stated_at")
        return visible(time) if isinstance(time, str) else None

    def signed_by(self, keys: Sequence[PublicKey]) -> tuple[PublicKey, ...]:
        """Return those of some keys that made a signature in it."""
        message = pre_authentication(self.payload)
        tried = self.signatures[:MOST_SIGNATURES]
        return tuple(key for key in keys if any(key.has_signed(message, each.value) for each in tried))


@dataclass(frozen=True, kw_only=True)
class SignedStatement:
    """A signature that was made.

    Attributes:
        path: The signature file.
        key_id: Which key made it.
        others: Signatures of other keys that the file holds besides.
    """

    path: Path
    key_id: str
    others: int


def signature_of(file: Path) -> Path:
    """Return where the signatures of a file lie: `a.zip` and `a.zip.sig`."""
    return Path(f"{file}.sig")


def statement_text(statement: dict[str, Any]) -> bytes:
    """Return a statement in the form that is signed: UTF-8, sorted keys, no spaces."""
    return json.dumps(statement, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def predicate_of(statement: dict[str, Any]) -> dict[str, Any]:
    """Return the predicate of a statement, or nothing if it is missing."""
    predicate = statement.get("predicate")
    return predicate if isinstance(predicate, dict) else {}


def read_envelope(path: Path) -> Envelope | Problem:
    """Return what a signature file holds, or why it is not one: TP869 missing or unreadable, TP834 not an envelope."""
    try:
        content = limited_content(path)
    except OSError as error:
        return refusal("TP869", str(path), f"The signature cannot be read: {error.strerror or error}.")
    envelope = parsed_object(content)
    payload, signatures = _decode(envelope.get("payload")), envelope.get("signatures")
    if envelope.get("payloadType") != PAYLOAD_TYPE or payload is None or not isinstance(signatures, list):
        return refusal("TP834", str(path), "This is no DSSE envelope of an in-toto statement.")
    return Envelope(payload=payload, signatures=tuple(_signatures(signatures)))


def add_signature(path: Path, payload: bytes, key: PrivateKey, *, same: Any) -> SignedStatement:
    """Sign a statement, into a file that may hold signatures of other people; none of those is lost.

    Where others have signed a statement about the same content, theirs is the one that is signed too. Where every
    signature in the file is of this key, the file is replaced.

    Args:
        path: The signature file.
        payload: The statement.
        key: The key of the signer.
        same: Whether a statement that others signed is about the same content: `same(statement)`.

    Raises:
        ProblemError: Exit code 2: others have signed something else there, or the file cannot be written.
    """
    mine, there, others = key.public, read_envelope(path) if path.exists() else None, 0
    if isinstance(there, Problem):
        raise ProblemError([_in_the_way(path, "It cannot be read as a signature file.")], exit_code=2)
    if there is not None:
        message = pre_authentication(there.payload)
        kept = tuple(each for each in there.signatures if not mine.has_signed(message, each.value))
        others = len(kept)
        if others and not same(there.statement):
            whose = ", ".join(visible(each.key_id) for each in kept[:3])
            raise ProblemError(
                [_in_the_way(path, f"It holds {quantity(others, 'signature')} for other content, by {whose}.")],
                exit_code=2,
            )
        payload = there.payload if others else payload
    else:
        kept = ()
    own = Signature(key_id=mine.key_id, value=key.sign(pre_authentication(payload)))
    _write(path, Envelope(payload=payload, signatures=(*kept, own)))
    return SignedStatement(path=path, key_id=mine.key_id, others=others)


def pre_authentication(payload: bytes) -> bytes:
    """Return what is signed in DSSE: `DSSEv1`, length and text of the type, length and text of the payload."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def parsed_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    value = parse_json(content, file="").value
    return value if isinstance(value, dict) else {}


def _signatures(values: Sequence[Any]) -> list[Signature]:
    found = []
    for each in values:
        value = _decode(each.get("sig")) if isinstance(each, dict) else None
        if value is not None:
            key_id = each.get("keyid")
            found.append(Signature(key_id=key_id if isinstance(key_id, str) else "", value=value))
    return found


def _write(path: Path, envelope: Envelope) -> None:
    document = {
        "payload": base64.b64encode(envelope.payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": each.key_id, "sig": base64.b64encode(each.value).decode()} for each in envelope.signatures
        ],
    }
    try:
        write_text(path, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        what = f"The signature cannot be written: {error.strerror or error}."
        raise ProblemError([refusal("TP848", str(path), what)], exit_code=2) from None


def _in_the_way(path: Path, what: str) -> Problem:
    return refusal("TP870", str(path), what)


def _decode(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None
