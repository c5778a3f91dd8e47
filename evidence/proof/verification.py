"""Grade runs with proofs from outside of the folder.

Anyone who can write a folder can write a consistent one. `verified` needs this user's own sealed receipt, a receipt
signed by a trusted key, or the attestation of a workflow; an unknown person's receipt is shown as a claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.grade import Grade, RunReport, check_run
from evidence.layout import RECEIPTS
from evidence.proof import receipts
from evidence.proof.receipts import Coverage
from evidence.proof.signatures import signature_path, verify_signature
from evidence.proof.trust import allowed_signers_path
from evidence.run import Run
from schemas.formats import join_words, visible

NOT_COVERED = (
    "Device, duration and memory are what the run states: only a witness can confirm them, a repetition cannot "
    "(docs/verify/signing.md)."
)
"""Shown with every receipt."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A statement about a run from outside of its folder, made at an RFC 3339 time.

    `by` is `you`, the name of a trusted person or service, or None for an author who is not trusted. Only receipts have
    a coverage.
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
    """Return the receipts for the run in a folder whose manifest has this hash, newest first."""
    places = (receipts.own_receipts_folder() / sha256, folder / RECEIPTS)
    found = [each for place in places for each in receipts.read_receipts(place, sha256)]
    if not found:
        return ()
    extent = receipts.load_extent(folder)
    proofs = [
        Proof(
            by="you" if receipts.is_own(receipt) else _trusted_signer(path),
            made_at=receipt["made_at"],
            description=visible(receipt["said"]),
            is_positive=not receipts.is_negative(receipt),
            coverage=receipts.measure_coverage(receipt, extent),
        )
        for path, receipt in found
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

    A consistent run that a witness saw, or of which enough was reproduced, is verified. If a repetition differed or
    covers too little, the run stays consistent and the reasons say why.
    """
    if grade.name != "consistent" or not proofs:
        return grade
    trusted = [proof for proof in proofs if proof.by]
    negative = [str(proof) for proof in trusted if not proof.is_positive]
    positive = [proof for proof in trusted if proof.is_positive]
    claims = [str(proof) for proof in proofs if not proof.by]
    coverage = receipts.merge_coverage([proof.coverage for proof in positive if proof.coverage is not None])
    is_witnessed = any(proof.coverage is None for proof in positive)
    missing = coverage.missing() if coverage else []
    is_verified = not negative and (is_witnessed or (coverage is not None and not missing))
    details = [coverage.description, *([] if is_verified else missing), NOT_COVERED] if coverage else []
    if coverage and (is_verified or ((coverage.trained or coverage.steps) and not negative)):
        summary = coverage.summary
    else:
        summary = "seen by a witness" if is_verified else ""
    return Grade(
        name="verified" if is_verified else "consistent",
        # Repetitions with the same result on one day are mentioned once.
        reasons=tuple(dict.fromkeys([*negative, *map(str, positive), *details, *grade.reasons, *claims])),
        scope=_scope(trusted) if trusted else grade.scope,
        coverage=summary,
    )


def _scope(trusted: Sequence[Proof]) -> str:
    """Describe trusted proofs: `with receipts from Ada and you`."""
    signers = sorted({str(proof.by) for proof in trusted if proof.coverage is not None})
    witnesses = sorted({str(proof.by) for proof in trusted if proof.coverage is None})
    parts = [f"receipts from {join_words(signers, 'and')}"] if signers else []
    parts += [f"an attestation from {join_words(witnesses, 'and')}"] if witnesses else []
    return f"with {' and '.join(parts)}"


def grade_run(run: Run) -> RunReport:
    """Check a run, and grade it with the proofs about it."""
    return grade_reports([check_run(run)])[0]


def grade_reports(reports: Sequence[RunReport]) -> list[RunReport]:
    """Return reports with grades that take the proofs about their runs into account."""
    return [
        replace(each, grade=apply_proofs(each.grade, find_proofs(each.path, each.manifest_sha256)))
        if each.grade.name == "consistent" and each.manifest_sha256
        else each
        for each in reports
    ]


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
