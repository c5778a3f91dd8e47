"""What people and services outside of a run's folder prove about it, and the grade `verified` that this gives.

Anyone who can write a folder can write a consistent one, so the folder alone is `consistent` at best. A proof comes
from outside: this user's own sealed receipt, a receipt that a trusted key signed, or the attestation of a workflow. A
proof by someone unknown is a claim: it is shown and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.grade import Grade, RunReport, check_run
from evidence.proof.coverage import Coverage, load_extent, measure_coverage, merge_coverage
from evidence.proof.receipts import find_receipts, is_negative, summarize_receipt
from evidence.proof.signatures import signature_path, verify_signature
from evidence.proof.trust import allowed_signers_path
from evidence.run import Run

NOT_COVERED = (
    "Device, duration and memory are what the run states: only a witness can confirm them, a repetition cannot "
    "(docs/verify/signatures.md)."
)
"""Shown with every receipt."""

WITNESSED = "seen by a witness"
"""Shown with the grade of a run that nobody repeated, but whose making was attested."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A statement about a run from outside of its folder.

    Attributes:
        by: `you`, or the name of a trusted person or service; None if the reader does not trust its author.
        made_at: When it was made, as RFC 3339.
        description: What was done and found.
        is_positive: Whether it supports the run; a repetition that differs does not.
        coverage: How much of the run was repeated, or None for a witness, who repeats nothing.
    """

    by: str | None
    made_at: str
    description: str
    is_positive: bool
    coverage: Coverage | None = None

    def __str__(self) -> str:
        start = f"Checked by {self.by} on" if self.by else "Unverified claim by an unknown person on"
        return f"{start} {self.made_at[:10]}: {self.description}"


def find_proofs(folder: Path, sha256: str) -> tuple[Proof, ...]:
    """Return the proofs about a run, newest first.

    Args:
        folder: Its folder.
        sha256: Hash of its manifest.
    """
    found = list(find_receipts(folder, sha256))
    if not found:
        return ()
    extent = load_extent(folder)
    proofs = [
        Proof(
            by="you" if is_own else _trusted_signer(path),
            made_at=receipt["made_at"],
            description=summarize_receipt(receipt),
            is_positive=not is_negative(receipt),
            coverage=measure_coverage(receipt, extent),
        )
        for path, receipt, is_own in found
    ]
    return tuple(sorted(proofs, key=lambda proof: proof.made_at, reverse=True))


def _trusted_signer(receipt: Path) -> str | None:
    """Return the name of the trusted person who signed a receipt, or None."""
    signature, allowed = signature_path(receipt), allowed_signers_path()
    if not signature.is_file() or not allowed.is_file():
        return None
    return next(iter(verify_signature(receipt.read_bytes(), signature, allowed).names), None)


def apply_proofs(grade: Grade, proofs: Sequence[Proof]) -> Grade:
    """Return the grade of a run with the proofs about it.

    Example:
        A consistent run of which this user repeated everything today is verified, with the reason "Checked by you on
        2026-11-23: 5 of 5 segments are identical." One whose repetition differed stays consistent, and that is its
        first reason. So does one of which 4 of 2,800 steps were repeated; the reasons say what is missing.
    """
    if grade.name != "consistent":
        return grade
    trusted = [proof for proof in proofs if proof.by]
    negative = [str(proof) for proof in trusted if not proof.is_positive]
    positive = [proof for proof in trusted if proof.is_positive]
    claims = [str(proof) for proof in proofs if not proof.by]
    coverage = merge_coverage([proof.coverage for proof in positive if proof.coverage is not None])
    is_witnessed = any(proof.coverage is None for proof in positive)
    is_verified = not negative and (is_witnessed or (coverage is not None and coverage.is_sufficient))
    details: list[str] = []
    if coverage:
        details = [coverage.description, *([] if is_verified else coverage.missing()), NOT_COVERED]
    # Someone who repeats a run three times a day with the same result is mentioned once.
    reasons = tuple(dict.fromkeys([*negative, *map(str, positive), *details, *grade.reasons, *claims]))
    if is_verified:
        return Grade(name="verified", reasons=reasons, coverage=coverage.summary if coverage else WITNESSED)
    partial = coverage.summary if coverage and (coverage.trained or coverage.steps) and not negative else ""
    return Grade(name="consistent", reasons=reasons, coverage=partial)


def grade_run(run: Run) -> RunReport:
    """Check a run, and grade it with the proofs about it."""
    return _apply_to_report(check_run(run))


def grade_reports(reports: Sequence[RunReport]) -> list[RunReport]:
    """Return reports with grades that take the proofs about their runs into account."""
    return [_apply_to_report(report) for report in reports]


def _apply_to_report(report: RunReport) -> RunReport:
    if report.grade.name != "consistent" or report.manifest_sha256 is None:
        return report
    proofs = find_proofs(report.path, report.manifest_sha256)
    return replace(report, grade=apply_proofs(report.grade, proofs)) if proofs else report


def explain_receipt(receipt: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a receipt covers, what is missing for `verified`, and what its result means, as sentences."""
    marks = receipt["marks"]
    yield marks["said"]
    if receipt["result"] == "different":
        yield "For you the run stays `consistent` at best, and this is the first reason."
    elif not marks["lacking"]:
        yield "That is enough for `verified`, if the folder is `consistent`."
    else:
        yield f"That is not enough for `verified`. {' '.join(marks['lacking'])}"
    if receipt["result"] == "within tolerance" and receipt["kind"] == "replay":
        yield (
            "Within tolerance: the last digits differ from the run's, as they do on another processor or version. A "
            "training that differs by as little cannot be excluded."
        )
    if receipt["kind"] == "challenge":
        yield (
            "Report the stated score with its interval. The score of a challenge is on other questions, which may be "
            "harder; it shows whether the stated one is plausible."
        )
        yield "A challenge sees no step of the training: a model that was bought answers as well."
    yield NOT_COVERED
