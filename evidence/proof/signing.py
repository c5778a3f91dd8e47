"""Signing what is not a bundle: a receipt, or a statement about a run."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from evidence.proof.envelope import (
    STATEMENT,
    SignedStatement,
    add_signature,
    parsed_object,
    predicate_of,
    signature_of,
    statement_text,
)
from evidence.proof.keys import limited_content, private_key
from evidence.proof.rules import NOTHING_TO_SIGN, refusal
from evidence.proof.statement import RUN_PREDICATE
from evidence.run.hashes import sha256_file
from schemas.problems.problem import ProblemError
from schemas.problems.visible import visible
from schemas.validate import check_value

RECEIPT_PREDICATE = "https://trainproof.example/receipt/v1"


def sign_document(path: Path, key: Path, now: datetime) -> SignedStatement:
    """Sign a receipt or a statement about a run; signatures of other people beside it stay.

    A receipt is signed by its hash, so the file stays as it is and a `.sig` stands beside it. A statement is signed
    itself: it is the payload.

    Raises:
        ProblemError: Exit code 2: it is neither, the key cannot be used, or others have signed other content there.
    """
    private = private_key(key)
    document = _document(path)
    if document.get("_type") == STATEMENT and document.get("predicateType") == RUN_PREDICATE:
        payload, same = statement_text(document), document
        return add_signature(signature_of(path), payload, private, same=lambda other: other == same)
    if "covered" in document and not check_value("receipt", document, file=str(path)):
        statement = _receipt_statement(path, document, now)
        subject = _digests(statement)
        return add_signature(
            signature_of(path), statement_text(statement), private, same=lambda other: _digests(other) == subject
        )
    what = "This is neither a bundle nor a receipt nor a statement about a run."
    raise ProblemError([refusal(NOTHING_TO_SIGN, str(path), what)], exit_code=2)


def _document(path: Path) -> dict[str, Any]:
    try:
        return parsed_object(limited_content(path))
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
        raise ProblemError([refusal(NOTHING_TO_SIGN, str(path), what)], exit_code=2) from None


def _receipt_statement(path: Path, receipt: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {
        "_type": STATEMENT,
        "subject": [{"name": visible(path.name), "digest": {"sha256": sha256_file(path)}}],
        "predicateType": RECEIPT_PREDICATE,
        "predicate": {
            "run_id": receipt["run_id"],
            "run_sha256": receipt["run_sha256"],
            "result": receipt["result"],
            "said": receipt["said"],
            "stated_at": now.isoformat(timespec="seconds"),
        },
    }


def _digests(statement: dict[str, Any]) -> Any:
    """Return what a statement about a receipt states, without its date and the file's name."""
    subjects = statement.get("subject")
    digests = [each.get("digest") for each in subjects if isinstance(each, dict)] if isinstance(subjects, list) else []
    predicate = {name: value for name, value in predicate_of(statement).items() if name != "stated_at"}
    return statement.get("predicateType"), digests, predicate
