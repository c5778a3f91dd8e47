"""Signing a bundle with a key of one's own, and checking such signatures.

A signature states that the holder of a key stood by this content. Whose key it is, one must know from elsewhere: the
reader names it, or it is on the reader's trust list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence.bundle.format.layout import BUNDLE_MANIFEST
from evidence.bundle.verdict import BundleVerdict, SignatureCheck, Signer
from evidence.proof.envelope import (
    STATEMENT,
    Envelope,
    SignedStatement,
    add_signature,
    parsed_object,
    predicate_of,
    read_envelope,
    signature_of,
    statement_text,
)
from evidence.proof.keys import PublicKey, limited_content, private_key
from evidence.proof.rules import refusal
from evidence.proof.statement import RUN_PREDICATE
from evidence.run.hashes import sha256_file
from schemas.formats import visible
from schemas.problems import Problem, ProblemError
from schemas.validate import check_value

PREDICATE = "https://trainproof.example/bundle/v1"


def sign_bundle(verdict: BundleVerdict, key: Path, now: datetime) -> SignedStatement:
    """Sign a bundle that was verified and holds; signatures of other people beside it stay.

    Raises:
        ProblemError: Exit code 1: the bundle does not hold. Exit code 2: the key cannot be used, or others have signed
            other content beside it.
    """
    private = private_key(key)
    if not verdict.holds:
        raise ProblemError(verdict.findings, exit_code=1)
    mine = _statement(verdict, now)
    return add_signature(
        signature_of(verdict.path),
        statement_text(mine),
        private,
        same=lambda other: _timeless(other) == _timeless(mine),
    )


def check_signature(
    verdict: BundleVerdict, signature: Path, keys: Mapping[PublicKey, str | None], *, asked: bool
) -> SignatureCheck:
    """Return which of some keys signed this bundle.

    Args:
        verdict: What the bundle is worth.
        signature: The signature file.
        keys: Each with the name of its holder on the trust list, or None.
        asked: Whether the reader named the key or the signature; what was only found beside the zip can warn, and
            never fails it.
    """
    envelope = read_envelope(signature)
    if isinstance(envelope, Problem):
        return _failed_check(signature, [envelope], asked=asked)
    by = tuple(Signer(key_id=key.key_id, name=keys[key]) for key in envelope.signed_by(tuple(keys)))
    unknown = max(len(envelope.signatures) - len(by), 0)
    if not by and asked:
        what = "No signature in it was made with this key for this content."
        return _failed_check(signature, [refusal("TP834", str(signature), what)], asked=asked)
    problems = list(_other_content(verdict, signature, envelope)) if by else []
    return replace(
        _failed_check(signature, problems, asked=asked),
        signers=by,
        unknown=unknown,
        stated_at=envelope.stated_at if by else None,
    )


def _failed_check(signature: Path, problems: Sequence[Problem], *, asked: bool) -> SignatureCheck:
    told = problems if asked else [replace(each, severity="warning") for each in problems]
    return SignatureCheck(path=signature, problems=tuple(told), asked=asked)


def _statement(verdict: BundleVerdict, now: datetime) -> dict[str, Any]:
    """Return what is signed: the zip by its hash, its content by its digest, what it states, the grades of its runs."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": visible(verdict.path.name), "digest": {"sha256": sha256_file(verdict.path)}}],
        "predicateType": PREDICATE,
        "predicate": {
            "content_sha256": verdict.content_sha256,
            "bundle_manifest_sha256": verdict.manifest_sha256,
            "runs": [{"run_id": run.run_id, "grade": run.grade_alone} for run in verdict.runs],
            "stated_at": now.isoformat(timespec="seconds"),
        },
    }


def _timeless(statement: dict[str, Any]) -> dict[str, Any]:
    """Return a statement without when it was made and what the zip was called."""
    subjects = statement.get("subject")
    digests = [each.get("digest") for each in subjects if isinstance(each, dict)] if isinstance(subjects, list) else []
    predicate = {name: value for name, value in predicate_of(statement).items() if name != "stated_at"}
    return {**statement, "subject": digests, "predicate": predicate}


def _other_content(verdict: BundleVerdict, path: Path, envelope: Envelope) -> Sequence[Problem]:
    """Return in what a statement that was signed speaks of something else than this bundle."""
    statement = envelope.statement
    predicate = predicate_of(statement)
    if statement.get("predicateType") == RUN_PREDICATE:
        return _other_run(verdict, path, predicate)
    if statement.get("predicateType") != PREDICATE:
        return [refusal("TP835", str(path), "What was signed is no statement about a bundle or its runs.")]
    signed = predicate.get("content_sha256")
    # The content digest, not the zip's hash: packed again, it is the same evidence, and `verify` states it.
    if not isinstance(signed, str) or signed != verdict.content_sha256:
        actual = f"content digest {verdict.content_sha256}" if verdict.content_sha256 else "no digest that holds"
        what = f"The signature is for the content digest {signed}; this bundle has {actual}."
        return [refusal("TP835", str(path), what)]
    # Signatures made before it was signed too state nothing of it.
    if predicate.get("bundle_manifest_sha256", verdict.manifest_sha256) != verdict.manifest_sha256:
        what = f"The signature is for another {BUNDLE_MANIFEST}: label, version, grades or reasons were changed."
        return [refusal("TP835", str(path), what)]
    return []


def _other_run(verdict: BundleVerdict, path: Path, predicate: dict[str, Any]) -> Sequence[Problem]:
    """Return a problem unless a statement about a run is about the one run of this bundle."""
    there = [run.run_sha256 for run in verdict.runs]
    signed = predicate.get("run_sha256")
    if there == [signed]:
        return []
    found = f"the manifest of its run has {there[0]}" if len(there) == 1 else f"the bundle holds {len(there)} runs"
    what = f"The signature is for the run whose manifest has the hash {signed}; {found}."
    return [refusal("TP835", str(path), what)]


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
    raise ProblemError([refusal("TP871", str(path), what)], exit_code=2)


def _document(path: Path) -> dict[str, Any]:
    try:
        return parsed_object(limited_content(path))
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
        raise ProblemError([refusal("TP871", str(path), what)], exit_code=2) from None


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
