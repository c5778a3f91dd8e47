"""The one grade above `consistent`: a run that somebody whom the reader trusts has repeated or witnessed.

The folder alone makes a run consistent at best, for whoever can write a folder can write a consistent one. A proof
comes from outside of it: this user's own sealed receipt, one that a trusted key signed, or an attestation of a third
party. A proof by nobody known is a claim: it is shown and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.judge.grade import Grade
from evidence.judge.judgement import report_of
from evidence.judge.report import RunReport
from evidence.proof.receipts import receipt_line, receipts_of
from evidence.proof.trust import trusted_signers
from evidence.records.ours import Run

NOTHING = "No step and no answer of the trained model was repeated, so that it says nothing of the run."
_REPEATED = {"identical", "within tolerance"}


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What somebody outside a run's folder says of the run.

    Attributes:
        by: Who says so: `you`, or the name of a trusted key or party. None: nobody whom the reader trusts.
        made_at: When, as RFC 3339.
        said: What was done, how much of the run it covers and what came of it.
        holds: Whether it speaks for the run; a repetition that differs speaks against it.
        repeats: Whether any of what the training made was repeated; else it speaks neither for nor against the run.
    """

    by: str | None
    made_at: str
    said: str
    holds: bool
    repeats: bool = True


def proofs_of(folder: Path, sha256: str) -> tuple[Proof, ...]:
    """Return what is known of a run from outside its folder, newest first.

    Args:
        folder: Its folder.
        sha256: The hash of its manifest.
    """
    proofs = [
        Proof(
            by="you" if is_own else next(iter(trusted_signers(path, Path(f"{path}.sig"))), None),
            made_at=receipt["made_at"],
            said=receipt_line(receipt),
            holds=not speaks_against(receipt),
            repeats=repeats_something(receipt),
        )
        for path, receipt, is_own in receipts_of(folder, sha256)
    ]
    return tuple(sorted(proofs, key=lambda proof: proof.made_at, reverse=True))


def graded_with(grade: Grade, proofs: Sequence[Proof]) -> Grade:
    """Return the grade of a run with what was found outside of its folder.

    Example:
        A consistent run that this user has replayed today is verified: "Checked by you on 2026-11-23: 5 of 5 segments
        are identical." One whose repetition differed stays consistent, and that is its first reason.
    """
    if grade.name != "consistent":
        return grade
    against = [_sentence(proof) for proof in proofs if proof.by and not proof.holds]
    speaking = [_sentence(proof) for proof in proofs if proof.by and proof.holds and proof.repeats]
    silent = [f"{_sentence(proof)} {NOTHING}" for proof in proofs if proof.by and proof.holds and not proof.repeats]
    claims = [_claim(proof) for proof in proofs if not proof.by]
    if speaking and not against:
        return Grade(name="verified", reasons=_each_once(*speaking, *grade.reasons))
    return Grade(name="consistent", reasons=_each_once(*against, *speaking, *silent, *grade.reasons, *claims))


def speaks_against(receipt: dict[str, Any]) -> bool:
    """Return whether a receipt says that anything differs, in its result or in any part of it."""
    covered = receipt["covered"]
    parts = [covered.get("start", {}).get("verdict"), *(each["verdict"] for each in covered["segments"])]
    return receipt["result"] == "different" or "different" in parts or covered["items"]["different"] > 0


def repeats_something(receipt: dict[str, Any]) -> bool:
    """Return whether a receipt covers any of what the training made: a step of it, or an answer of its model.

    Answers before training, and a start, are given by whoever draws the same weights, and say nothing of the run.
    """
    tried = any(
        each["verdict"] in _REPEATED and each["last_step"] > each["first_step"]
        for each in receipt["covered"]["segments"]
    )
    items = receipt["covered"]["items"]
    return tried or (items["drawn"] > 0 and (receipt["kind"] == "challenge" or items.get("trained", 0) > 0))


def standing_of(run: Run) -> RunReport:
    """Return a run's findings, and the grade that follows from them and from what is known outside of its folder."""
    return _with_proofs(report_of(run))


def with_proofs(reports: Sequence[RunReport]) -> list[RunReport]:
    """Return reports of run folders with the grades that proofs from outside give them."""
    return [_with_proofs(report) for report in reports]


def _with_proofs(report: RunReport) -> RunReport:
    if report.grade.name != "consistent" or report.manifest_sha256 is None:
        return report
    proofs = proofs_of(report.path, report.manifest_sha256)
    return replace(report, grade=graded_with(report.grade, proofs)) if proofs else report


def _each_once(*reasons: str) -> tuple[str, ...]:
    """Return reasons in their order; who repeats a run three times a day with one result says it once."""
    return tuple(dict.fromkeys(reasons))


def _sentence(proof: Proof) -> str:
    return f"Checked by {proof.by} on {proof.made_at[:10]}: {proof.said}"


def _claim(proof: Proof) -> str:
    return f"A claim, by nobody whom you trust, of {proof.made_at[:10]}: {proof.said}"
