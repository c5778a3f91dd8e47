"""What witnesses from outside attest of the runs of a bundle: time authorities, and workflows of GitHub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.bundle.verdict import AttestationCheck, BundleVerdict, StampCheck, VerifiedRun
from evidence.judge.grade import Grade
from evidence.proof.attestation import Attestation, attestation_roots, attestations_in
from evidence.proof.rules import refusal
from evidence.proof.stamps.authority import stamp_path
from evidence.proof.stamps.record import stamp_beside, stamp_is_refuted, stamp_sentence, stamp_worth, trusted_roots
from evidence.proof.verification import Proof, graded_with
from evidence.run.hashes import sha256_file
from evidence.run.layout import STAMPS
from schemas.formats import join_words
from schemas.problems import Problem

HOSTED = "github-hosted"


def with_stamps(verdict: BundleVerdict, root: Path | None) -> BundleVerdict:
    """Return a verdict with the worth of time stamps to this reader: those of its runs, and one beside the zip as .tsr.

    Args:
        verdict: What the bundle is worth.
        root: Root certificate of a time authority. None: those on the trust list.

    Raises:
        ProblemError: Exit code 2: the certificate or the trust list cannot be used.
    """
    beside = stamp_beside(verdict.path)
    stamps = [(run.run_id, f"runs/{run.run_id}/{STAMPS}", stamp) for run in verdict.runs for stamp in run.stamps]
    stamps += [(verdict.path.name, str(stamp_path(verdict.path)), beside)] if beside else []
    if not stamps:
        return verdict
    roots = trusted_roots(root)
    told, problems = [], []
    for name, file, stamp in stamps:
        worth = stamp_worth(stamp, roots)
        sentence = stamp_sentence(stamp, worth, asked=root is not None)
        told.append(f"{name}: {sentence}")
        if stamp_is_refuted(stamp, worth, asked=root is not None):
            found = refusal("TP862", file, sentence)
            # What only lies beside the zip can warn, and never fails it.
            unasked = stamp is beside and root is None
            problems.append(replace(found, severity="warning") if unasked else found)
    return replace(verdict, stamps=StampCheck(sentences=tuple(told), problems=tuple(problems)))


def with_attestation(verdict: BundleVerdict, path: Path, root: Path | None, repository: str | None) -> BundleVerdict:
    """Return a verdict with what an attestation states of the bundle, and the grades that it gives.

    Args:
        verdict: What the bundle is worth.
        path: File of attestations.
        root: Trusted root of Sigstore. None: those on the trust list.
        repository: `OWNER/NAME` that the reader trusts, of which the workflow is to be. None: none is trusted, so what
            it states is reported and changes no grade.

    Raises:
        ProblemError: As `attestations_in` and `attestation_roots`.
    """
    roots = attestation_roots(root)
    found = attestations_in(path, roots)
    of_zip = sha256_file(verdict.path) if verdict.path.is_file() else "no zip"
    by_digest = {of_zip: None} | {run.run_sha256: run for run in verdict.runs if run.run_sha256}
    about = [each for each in found if each.digests & by_digest.keys()]
    if not about:
        attested = join_words(sorted({digest for each in found for digest in each.digests})[:3]) or "nothing by SHA-256"
        what = f"It attests {attested}; the zip has {of_zip}."
        return _refuse(verdict, path, [refusal("TP864", str(path), what)])
    best = next((each for each in about if each.root), about[0])
    covered = [run for run in verdict.runs if of_zip in best.digests or run.run_sha256 in best.digests]
    problems = list(_problems(path, best, covered, repository))
    if problems:
        return _refuse(verdict, path, problems)
    against = _doubt_about(best, roots, repository)
    proof = _proof(best, believed=against is None)
    lifted = [_lift(run, proof) if run in covered else run for run in verdict.runs]
    check = AttestationCheck(
        path=path, sentence=_sentence(best), invocation=best.invocation, unchecked=against, problems=()
    )
    return replace(verdict, runs=tuple(lifted), attestation=check)


def _refuse(verdict: BundleVerdict, path: Path, problems: Sequence[Problem]) -> BundleVerdict:
    check = AttestationCheck(path=path, sentence=None, invocation=None, unchecked=None, problems=tuple(problems))
    return replace(verdict, attestation=check)


def _problems(
    path: Path, attestation: Attestation, covered: Sequence[VerifiedRun], repository: str | None
) -> Sequence[Problem]:
    """Return in what an attestation does not hold, or does not fit the runs."""
    problems = []
    if attestation.problem:
        problems.append(refusal("TP863", str(path), attestation.problem))
    if repository is not None and repository != attestation.repository:
        what = f"The workflow is one of {attestation.repository}, and {repository} was asked for."
        problems.append(refusal("TP864", str(path), what))
    for run in covered:
        if run.commit != attestation.commit:
            stated = f"states the commit {run.commit}" if run.commit else "states no commit"
            what = f"The workflow ran at commit {attestation.commit}, and the run {run.run_id} {stated}."
            problems.append(refusal("TP864", str(path), what))
    return problems


def _proof(attestation: Attestation, *, believed: bool) -> Proof:
    return Proof(
        by="GitHub" if believed else None,
        made_at=attestation.made_at.isoformat(timespec="seconds"),
        said=_sentence(attestation),
        holds=True,
    )


def _lift(run: VerifiedRun, proof: Proof) -> VerifiedRun:
    if run.grade == "verified":
        return replace(run, reasons=(*run.reasons, proof.said))
    grade = graded_with(Grade(name=run.grade, reasons=run.reasons), [proof])
    coverage = "; ".join(each for each in (grade.coverage, run.coverage) if each)
    return replace(run, grade=grade.name, reasons=tuple(grade.reasons), coverage=coverage)


def _sentence(attestation: Attestation) -> str:
    machine = "a machine of GitHub" if attestation.runner == HOSTED else "a machine of its owner's"
    return (
        f"Made by the workflow {attestation.workflow} of {attestation.repository} at commit {attestation.commit[:12]}, "
        f"on {machine}."
    )


def _doubt_about(attestation: Attestation, roots: Mapping[str, Any], repository: str | None) -> str | None:
    """Return what stands against believing an attestation that does not contradict the bundle; None: nothing does."""
    if not roots:
        return (
            "Its signature, certificate and log entry were not checked, since no trusted root was named: anyone could "
            "have written it. `--trusted-root FILE` checks them (`gh attestation trusted-root` prints one)."
        )
    if attestation.runner != HOSTED:
        machine = attestation.runner or "not named"
        return f"It ran on a machine that is {machine}: its owner could have done anything there."
    if repository is None:
        return (
            f"Whoever owns {attestation.repository} decides what its workflows do: read that one, then say with "
            f"`--repository {attestation.repository}` that you trust it."
        )
    return None
