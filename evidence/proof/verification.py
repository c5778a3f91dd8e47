"""Grade runs and bundles with proofs from outside of the folder.

Anyone who can write a folder can write a consistent one, so a folder alone is `consistent` at best. `verified` needs
this user's own sealed receipt, a receipt signed by a trusted key, or the attestation of a workflow. An unknown person's
receipt is shown as a claim and does not change the grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.bundle.verdict import AttestationCheck, BundleVerdict, SignatureCheck, Signer, StampCheck, VerifiedRun
from evidence.grade import Grade, RunReport, check_run
from evidence.hashes import sha256_file
from evidence.layout import STAMPS
from evidence.proof.attestations import load_attestation_roots, verify_attestations
from evidence.proof.receipts import (
    Coverage,
    RunExtent,
    find_receipts,
    is_negative,
    load_extent,
    measure_coverage,
    merge_coverage,
    summarize_receipt,
)
from evidence.proof.signatures import (
    SignatureResult,
    bundle_message,
    read_fingerprint,
    refuse,
    sign,
    signature_path,
    verify_signature,
)
from evidence.proof.timestamps import load_authority_roots, load_zip_timestamp, timestamp_path, verify_timestamp
from evidence.proof.trust import allowed_signers_path
from evidence.run import Run
from schemas.formats import join_words, visible
from schemas.problems import Problem, ProblemError, problem_of

NOT_COVERED = (
    "Device, duration and memory are what the run states: only a witness can confirm them, a repetition cannot "
    "(docs/verify/signing.md)."
)
"""Shown with every receipt."""

WITNESSED = "seen by a witness"
"""Coverage of a run that was attested by a workflow but not repeated."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A statement about a run from outside of its folder, made at an RFC 3339 time.

    `by` is `you`, the name of a trusted person or service, or None if its author is not trusted. A witness has no
    coverage.
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
    """Return the proofs about the run in a folder whose manifest has this hash, newest first."""
    found = list(find_receipts(folder, sha256))
    extent = load_extent(folder) if found else RunExtent()
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

    A consistent run that a witness saw, or of which enough was reproduced, is verified. If a repetition differed or
    covers too little, the run stays consistent and the reasons say why.
    """
    if grade.name != "consistent":
        return grade
    trusted = [proof for proof in proofs if proof.by]
    negative = [str(proof) for proof in trusted if not proof.is_positive]
    positive = [proof for proof in trusted if proof.is_positive]
    claims = [str(proof) for proof in proofs if not proof.by]
    coverage = merge_coverage([proof.coverage for proof in positive if proof.coverage is not None])
    is_witnessed = any(proof.coverage is None for proof in positive)
    missing = coverage.missing() if coverage else []
    is_verified = not negative and (is_witnessed or (coverage is not None and not missing))
    details = [coverage.description, *([] if is_verified else missing), NOT_COVERED] if coverage else []
    # Repetitions with the same result on one day are mentioned once.
    reasons = tuple(dict.fromkeys([*negative, *map(str, positive), *details, *grade.reasons, *claims]))
    if is_verified:
        return Grade(name="verified", reasons=reasons, coverage=coverage.summary if coverage else WITNESSED)
    partial = coverage.summary if coverage and (coverage.trained or coverage.steps) and not negative else ""
    return Grade(name="consistent", reasons=reasons, coverage=partial)


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


def sign_bundle(verdict: BundleVerdict, key: Path) -> str:
    """Sign a bundle that was verified (into a `.sig` file next to it) and return the fingerprint of the key.

    Raises:
        ProblemError: Exit code 1: the bundle does not hold. Exit code 2: see `sign`.
    """
    if not verdict.holds or not verdict.content_sha256 or not verdict.manifest_sha256:
        raise ProblemError(verdict.findings, exit_code=1)
    return sign(bundle_message(verdict.content_sha256, verdict.manifest_sha256), key, signature_path(verdict.path))


def check_signature(verdict: BundleVerdict, signature: Path | None, public_key: Path | None) -> BundleVerdict:
    """Return a verdict with the result of a signature, by default the zip's `.sig`.

    `public_key` must have signed, or else any key on the trust list. A signature that was only found next to the zip
    can warn but never fails the bundle, because removing it would be easier than forging it.

    Raises:
        ProblemError: Exit code 2: the key or the trust list cannot be used, or `ssh-keygen` is missing.
    """
    path, allowed = signature or signature_path(verdict.path), allowed_signers_path()
    is_requested = signature is not None or public_key is not None
    if not is_requested and not path.is_file():
        return verdict
    if public_key is None and is_requested and not allowed.is_file():
        what = "A signature proves nothing without the public key of the person who should have made it."
        raise refuse(path, "TP855", what=what)
    expected = read_fingerprint(public_key) if public_key else None
    message = bundle_message(verdict.content_sha256 or "none", verdict.manifest_sha256 or "none")
    try:
        result = verify_signature(message, path, allowed)
    except ProblemError as error:
        if is_requested:
            raise
        result = SignatureResult(problem=error.problems[0])
    problem, file = result.problem, visible(str(path))
    if result.key_id and is_requested and not (result.key_id == expected if expected else result.names):
        wanted = f"not with {expected}" if expected else "which is not on your trust list"
        what = f"The signature was made with the key {result.key_id}, {wanted}."
        problem = problem_of("TP834", file=file, what=what)
    if problem:
        problem = problem if is_requested else replace(problem, severity="warning")
        return replace(verdict, signature=SignatureCheck(path=path, problems=(problem,), asked=is_requested))
    names: tuple[str | None, ...] = result.names or ((None,) if expected else ())
    signers = tuple(Signer(key_id=str(result.key_id), name=name) for name in names)
    check = SignatureCheck(path=path, problems=(), asked=is_requested, signers=signers, key_id=result.key_id)
    return replace(verdict, signature=check)


def check_timestamps(verdict: BundleVerdict, root: Path | None) -> BundleVerdict:
    """Return a verdict with the results of the time stamps of its runs and of the one next to the zip.

    `root` is the root certificate of a time authority; by default, those on the trust list count.

    Raises:
        ProblemError: Exit code 2: the certificate or the trust list cannot be used.
    """
    of_zip = load_zip_timestamp(verdict.path)
    stamps = [(run.run_id, f"runs/{run.run_id}/{STAMPS}", stamp) for run in verdict.runs for stamp in run.stamps]
    stamps += [(verdict.path.name, str(timestamp_path(verdict.path)), of_zip)] if of_zip else []
    if not stamps:
        return verdict
    roots = load_authority_roots(root)
    sentences, problems = [], []
    for name, file, stamp in stamps:
        sentence, is_refuted = verify_timestamp(stamp, roots, requested=root is not None)
        sentences.append(f"{name}: {sentence}")
        if is_refuted:
            # As with signatures, a stamp next to the zip can only warn, unless the reader named its root.
            problem = problem_of("TP862", file=visible(file), what=sentence)
            problems.append(replace(problem, severity="warning") if stamp is of_zip and root is None else problem)
    return replace(verdict, stamps=StampCheck(sentences=tuple(sentences), problems=tuple(problems)))


def check_attestation(verdict: BundleVerdict, path: Path, root: Path | None, repository: str | None) -> BundleVerdict:
    """Return a verdict with the result of a workflow's attestation, and the grades that it gives.

    Args:
        verdict: Verdict on the bundle.
        path: File of attestations.
        root: Trusted root of Sigstore; by default those on the trust list. Without any, nothing is checked.
        repository: `OWNER/NAME` of a repository whose workflows the reader trusts. Without one, nothing is checked.

    Raises:
        ProblemError: Exit code 2: a file or the trust list cannot be used, or the extra `witness` is not installed.
    """
    roots = load_attestation_roots(root) if repository else {}
    if repository is None or not roots:
        missing = "a trusted root: `--trusted-root FILE`"
        if repository is None:
            missing = "the repository whose workflow should have made it: `--repository OWNER/NAME`"
        unchecked = f"{visible(path.name)} was not checked. Pass {missing}."
        return replace(verdict, attestation=AttestationCheck(path=path, unchecked=unchecked))
    commits = dict.fromkeys(run.commit for run in verdict.runs if run.commit)
    found = verify_attestations(path, roots, repository, commits)
    if isinstance(found, Problem):
        return replace(verdict, attestation=AttestationCheck(path=path, problems=(found,)))
    zip_sha256 = sha256_file(verdict.path) if verdict.path.is_file() else None
    for attestation in found:
        subjects = [run for run in verdict.runs if not attestation.digests.isdisjoint({zip_sha256, run.run_sha256})]
        covered = [run for run in subjects if run.commit == attestation.commit]
        if covered:
            workflow = f"a workflow of {visible(repository)} at commit {attestation.commit[:12]}"
            sentence = f"Made by {workflow}, on a machine of GitHub."
            proof = Proof(by="GitHub", made_at=attestation.made_at, description=sentence, is_positive=True)
            runs = tuple(_apply_to_run(run, proof) if run in covered else run for run in verdict.runs)
            check = AttestationCheck(path=path, sentence=sentence, invocation=attestation.invocation)
            return replace(verdict, runs=runs, attestation=check)
    digests = sorted({digest for attestation in found for digest in attestation.digests})
    subject = visible(join_words(digests[:3])) if digests else "no file"
    what = f"The attestation is for {subject}; the zip has {zip_sha256}."
    problem = problem_of("TP864", file=visible(str(path)), what=what)
    return replace(verdict, attestation=AttestationCheck(path=path, problems=(problem,)))


def _apply_to_run(run: VerifiedRun, proof: Proof) -> VerifiedRun:
    if run.grade == "verified":
        return replace(run, reasons=(*run.reasons, proof.description))
    grade = apply_proofs(Grade(name=run.grade, reasons=run.reasons), [proof])
    coverage = "; ".join(each for each in (grade.coverage, run.coverage) if each)
    return replace(run, grade=grade.name, reasons=grade.reasons, coverage=coverage)
