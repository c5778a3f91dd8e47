"""The one grade above `consistent`: a run that a person whom the reader trusts has repeated or witnessed.

The folder alone makes a run consistent at best, since anyone who can write a folder can write a consistent one. A proof
comes from outside of it: this user's own sealed receipt, one that a trusted key signed, or an attestation of a third
party. A proof by no one known is a claim: it is shown and changes nothing. How much a receipt covers, and what of it
`verified` needs, stands in `marks`; the coverage stands beside the grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.grade import Grade, RunReport, check_run
from evidence.proof.marks import Marks, marks_of, stated_of, together
from evidence.proof.receipts import receipt_line, receipts_of
from evidence.proof.trust import trusted_signers
from evidence.run import Run

DEVICE = (
    "Device, duration and memory are as the run states them: no repetition shows them, only a witness does "
    "(docs/witness.md)."
)
"""What is reported beside every repetition."""

WITNESSED = "seen by a witness"
"""What stands beside the grade of a run that no one repeated, and whose making was seen."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a person outside a run's folder states of the run.

    Attributes:
        by: Who states it: `you`, or the name of a trusted key or party. None: no one whom the reader trusts.
        made_at: When, as RFC 3339.
        said: What was done and what came of it.
        holds: Whether it speaks for the run; a repetition that differs speaks against it.
        marks: How much of the run was repeated. None: nothing was repeated; a witness saw the run.
    """

    by: str | None
    made_at: str
    said: str
    holds: bool
    marks: Marks | None = None


def proofs_of(folder: Path, sha256: str) -> tuple[Proof, ...]:
    """Return what is known of a run from outside its folder, newest first.

    Args:
        folder: Its folder.
        sha256: The hash of its manifest.
    """
    found = list(receipts_of(folder, sha256))
    if not found:
        return ()
    stated = stated_of(folder)
    proofs = [
        Proof(
            by="you" if is_own else next(iter(trusted_signers(path, Path(f"{path}.sig"))), None),
            made_at=receipt["made_at"],
            said=receipt_line(receipt),
            holds=not speaks_against(receipt),
            marks=marks_of(receipt, stated),
        )
        for path, receipt, is_own in found
    ]
    return tuple(sorted(proofs, key=lambda proof: proof.made_at, reverse=True))


def graded_with(grade: Grade, proofs: Sequence[Proof]) -> Grade:
    """Return the grade of a run with what was found outside of its folder, and its coverage beside it.

    Example:
        A consistent run that this user has replayed whole today is verified: "Checked by you on 2026-11-23: 5 of 5
        segments are identical." One whose repetition differed stays consistent, and that is its first reason. So does
        one of which 4 of 2,800 steps were repeated; what is lacking is reported.
    """
    if grade.name != "consistent":
        return grade
    against = [_sentence(proof) for proof in proofs if proof.by and not proof.holds]
    speaking = [proof for proof in proofs if proof.by and proof.holds]
    claims = [_claim(proof) for proof in proofs if not proof.by]
    covered = covered_by(speaking)
    said = [_sentence(proof) for proof in speaking]
    if not against and (any(proof.marks is None for proof in speaking) or (covered and covered.is_enough)):
        told = [covered.said, DEVICE] if covered else []
        reasons = _each_once(*said, *told, *grade.reasons, *claims)
        return Grade(name="verified", reasons=reasons, coverage=covered.brief if covered else WITNESSED)
    lacking = [covered.said, *covered.lacking(), DEVICE] if covered else []
    reasons = _each_once(*against, *said, *lacking, *grade.reasons, *claims)
    beside = covered.brief if covered and not covered.is_nothing and not against else ""
    return Grade(name="consistent", reasons=reasons, coverage=beside)


def covered_by(proofs: Sequence[Proof]) -> Marks | None:
    """Return how much of a run several proofs repeated together, or None if none repeated anything."""
    marks = [proof.marks for proof in proofs if proof.marks is not None]
    return together(marks, marks[0].of) if marks else None


def speaks_against(receipt: dict[str, Any]) -> bool:
    """Return whether a receipt states that anything differs, in its result or in any part of it."""
    covered = receipt["covered"]
    parts = [covered.get("start", {}).get("verdict"), *(each["verdict"] for each in covered["segments"])]
    return receipt["result"] == "different" or "different" in parts or covered["items"]["different"] > 0


def standing_of(run: Run) -> RunReport:
    """Return a run's findings, and the grade that follows from them and from what is known outside of its folder."""
    return _with_proofs(check_run(run))


def with_proofs(reports: Sequence[RunReport]) -> list[RunReport]:
    """Return reports of run folders with the grades that proofs from outside give them."""
    return [_with_proofs(report) for report in reports]


def _with_proofs(report: RunReport) -> RunReport:
    if report.grade.name != "consistent" or report.manifest_sha256 is None:
        return report
    proofs = proofs_of(report.path, report.manifest_sha256)
    return replace(report, grade=graded_with(report.grade, proofs)) if proofs else report


def _each_once(*reasons: str) -> tuple[str, ...]:
    """Return reasons in their order; who repeats a run three times a day with one result states it once."""
    return tuple(dict.fromkeys(reasons))


def _sentence(proof: Proof) -> str:
    return f"Checked by {proof.by} on {proof.made_at[:10]}: {proof.said}"


def _claim(proof: Proof) -> str:
    return f"A claim, by an unknown person, of {proof.made_at[:10]}: {proof.said}"


LAST_BITS = (
    "Within tolerance: numbers differ from the run's in their last digits, as another processor or version makes them "
    "differ; the run is not accused, and a training that differs no more than so is not excluded."
)
WHICH_SCORE = (
    "Write down the stated score with its interval. The one found is on other questions, which may be harder; it says "
    "whether the stated one can be true."
)
NO_TRAINING = "A challenge sees no step of the training: a model bought elsewhere answers as well."


def for_judges(receipt: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a receipt covers, what is lacking for `verified`, and what its result means, as sentences."""
    marks = receipt["marks"]
    yield marks["said"]
    if receipt["result"] == "different":
        yield "The run stays `consistent` at best for you, and this is the first reason."
    elif not marks["lacking"]:
        yield "That is enough for `verified`, if the folder is `consistent`."
    else:
        yield f"That is not enough for `verified`. {' '.join(marks['lacking'])}"
    if receipt["result"] == "within tolerance" and receipt["kind"] == "replay":
        yield LAST_BITS
    if receipt["kind"] == "challenge":
        yield WHICH_SCORE
        yield NO_TRAINING
    yield DEVICE
