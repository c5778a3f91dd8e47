"""Sign bundles, and check their signatures, timestamps and attestations.

A signature or stamp that was only found next to a zip can warn but never fails the bundle, because removing it would be
easier than forging it. Attestations are Sigstore bundles, one a line, as `gh attestation download` writes them; the
package `sigstore` verifies them offline against a trusted root (github.com/sigstore/fulcio, docs/oid-info.md).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.bundle.verify import AttestationCheck, BundleVerdict, SignatureCheck, StampCheck
from evidence.extras import need
from evidence.hashes import sha256_file
from evidence.layout import STAMPS
from evidence.proof import signatures
from evidence.proof.timestamps import load_authority_roots, load_zip_timestamp, timestamp_path, verify_timestamp
from evidence.proof.trust import allowed_signers_path, load_sigstore_roots, root_texts, split_json
from evidence.proof.verification import Proof
from schemas.formats import join_words, visible
from schemas.problems import Problem, ProblemError, problem_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import TrustedRoot

_ISSUER = "https://token.actions.githubusercontent.com"  # GitHub's identity service for workflows
_MAX_ATTESTATIONS = 32  # read from a file; a hostile one may contain any number
_RUN_INVOCATION_OID = "1.3.6.1.4.1.57264.1.21"


def sign_bundle(verdict: BundleVerdict, key: Path) -> str:
    """Sign a bundle (into a `.sig` file next to it) as `sign` does; one that does not verify is a problem."""
    if not verdict.holds or not verdict.content_sha256 or not verdict.manifest_sha256:
        raise ProblemError(verdict.findings, exit_code=1)
    message = signatures.bundle_message(verdict.content_sha256, verdict.manifest_sha256)
    return signatures.sign(message, key, signatures.signature_path(verdict.path))


def check_signature(verdict: BundleVerdict, signature: Path | None, public_key: Path | None) -> BundleVerdict:
    """Return a verdict with the result of a signature, by default the zip's `.sig`.

    `public_key` must have signed, or else any key on the trust list. An unusable key or list, and a missing
    `ssh-keygen`, are problems with exit code 2.
    """
    path, allowed = signature or signatures.signature_path(verdict.path), allowed_signers_path()
    is_requested = signature is not None or public_key is not None
    if not is_requested and not path.is_file():
        return verdict
    if public_key is None and is_requested and not allowed.is_file():
        what = "A signature proves nothing without the public key of the person who should have made it."
        raise signatures.problem_error(path, "TP855", what=what)
    expected = signatures.read_fingerprint(public_key) if public_key else None
    message = signatures.bundle_message(verdict.content_sha256 or "none", verdict.manifest_sha256 or "none")
    try:
        result = signatures.verify_signature(message, path, allowed)
    except ProblemError as error:
        if is_requested:
            raise
        result = signatures.SignatureResult(problem=error.problems[0])
    problem = result.problem
    if result.key_id and is_requested and not (result.key_id == expected if expected else result.names):
        wanted = f"not with {expected}" if expected else "which is not on your trust list"
        what = f"The signature was made with the key {result.key_id}, {wanted}."
        problem = problem_of("TP834", file=visible(str(path)), what=what)
    check = SignatureCheck(path=path, is_requested=is_requested)
    if problem:
        check = replace(check, problems=(problem if is_requested else replace(problem, severity="warning"),))
    else:
        check = replace(check, key_id=result.key_id, signers=result.names or ((None,) if expected else ()))
    return replace(verdict, signature=check)


def check_timestamps(verdict: BundleVerdict, root: Path | None) -> BundleVerdict:
    """Return a verdict with the results of the timestamps of its runs and of the one next to the zip.

    `root` is the root certificate of a time authority; by default, those on the trust list count. An unusable
    certificate or list is a problem with exit code 2.
    """
    of_zip = load_zip_timestamp(verdict.path)
    stamps = [(run.name, f"runs/{run.name}/{STAMPS}", stamp) for run in verdict.runs for stamp in run.stamps]
    stamps += [(verdict.path.name, str(timestamp_path(verdict.path)), of_zip)] if of_zip else []
    if not stamps:
        return verdict
    roots = load_authority_roots(root)
    sentences, problems = [], []
    for name, file, stamp in stamps:
        sentence, is_refuted = verify_timestamp(stamp, roots, requested=root is not None)
        sentences.append(f"{name}: {sentence}")
        if is_refuted:
            problem = problem_of("TP862", file=visible(file), what=sentence)
            problems.append(replace(problem, severity="warning") if stamp is of_zip and root is None else problem)
    return replace(verdict, stamps=StampCheck(sentences=tuple(sentences), problems=tuple(problems)))


def check_attestation(verdict: BundleVerdict, path: Path, root: Path | None, repository: str | None) -> BundleVerdict:
    """Return a verdict with the result of a workflow's attestation, and the grades that it gives.

    Nothing is checked without a `repository` (`OWNER/NAME`) whose workflows the reader trusts, and without a trusted
    root of Sigstore: `root`, or by default those on the trust list. Unusable files and the missing extra `witness` are
    problems with exit code 2.
    """
    check = AttestationCheck(path=path)
    roots = {
        name if number == 1 else f"{name} ({number})": loaded
        for name, text, file in (root_texts("attestation root", root) if repository else ())
        for number, loaded in enumerate(load_sigstore_roots(text, file), start=1)
    }
    if repository is None or not roots:
        missing = "a trusted root: `--trusted-root FILE`"
        if repository is None:
            missing = "the repository whose workflow should have made it: `--repository OWNER/NAME`"
        unchecked = f"{visible(path.name)} was not checked. Pass {missing}."
        return replace(verdict, attestation=replace(check, unchecked=unchecked))
    commits = dict.fromkeys(run.commit for run in verdict.runs if run.commit)
    found = verify_attestations(path, roots, repository, commits)
    if isinstance(found, Problem):
        return replace(verdict, attestation=replace(check, problems=(found,)))
    zip_sha256 = sha256_file(verdict.path) if verdict.path.is_file() else None
    for each in found:
        covered = [
            run
            for run in verdict.runs
            if run.commit == each.commit and not each.digests.isdisjoint({zip_sha256, run.manifest_sha256})
        ]
        if covered:
            workflow = f"a workflow of {visible(repository)} at commit {each.commit[:12]}"
            sentence = f"Made by {workflow}, on a machine of GitHub."
            proof = Proof(by="GitHub", made_at=each.made_at, description=sentence, is_positive=True)
            runs = tuple(replace(run, proofs=(*run.proofs, proof)) if run in covered else run for run in verdict.runs)
            check = replace(check, sentence=sentence, invocation=each.invocation)
            return replace(verdict, runs=runs, attestation=check)
    digests = sorted({digest for each in found for digest in each.digests})
    subject = visible(join_words(digests[:3])) if digests else "no file"
    what = f"The attestation is for {subject}; the zip has {zip_sha256}."
    problem = problem_of("TP864", file=visible(str(path)), what=what)
    return replace(verdict, attestation=replace(check, problems=(problem,)))


@dataclass(frozen=True, kw_only=True)
class Attestation:
    """A verified attestation, with the SHA-256 of the attested files and the address of the workflow run."""

    commit: str
    digests: frozenset[str]
    made_at: str
    invocation: str | None


def verify_attestations(
    path: Path, roots: Mapping[str, TrustedRoot], repository: str, commits: Collection[str]
) -> list[Attestation] | Problem:
    """Verify the Sigstore bundles in a file; return the valid ones, or the first problem if none is valid.

    The workflow must have run in `repository` (`OWNER/NAME`) at one of the commits.
    """
    need("verify --attestation", "witness")
    from sigstore.errors import Error
    from sigstore.models import Bundle
    from sigstore.verify import Verifier, policy

    parts = split_json(signatures.read_or_refuse(path, "TP863", "The attestation"))[:_MAX_ATTESTATIONS]
    found, failures = [], []
    for part, (name, root), commit in product(parts, roots.items(), commits):
        identity = policy.AllOf(
            [
                policy.OIDCIssuerV2(_ISSUER),
                policy.OIDCSourceRepositoryURI(f"https://github.com/{repository}"),
                policy.OIDCSourceRepositoryDigest(commit),
                policy.OIDCRunnerEnvironment("github-hosted"),
            ]
        )
        try:
            bundle = Bundle.from_json(part)
            _, payload = Verifier(trusted_root=root).verify_dsse(bundle, identity)
        except (Error, ValueError, RecursionError) as error:
            failures.append(f"{visible(str(error)).rstrip('.')} (root {name}).")
            continue
        certificate = bundle.signing_certificate
        issued_at = certificate.not_valid_before_utc.isoformat(timespec="seconds")
        address = _invocation(certificate)
        found.append(Attestation(commit=commit, digests=_digests(payload), made_at=issued_at, invocation=address))
    if not found:
        what = failures[0] if failures else "No run of the bundle states a commit that could be compared."
        return problem_of("TP863", file=visible(str(path)), what=f"The attestation is not valid: {what}")
    return found


def _digests(payload: bytes) -> frozenset[str]:
    """Return the SHA-256 of each subject of an in-toto statement; nothing if it is not one."""
    try:
        subjects = json.loads(payload)["subject"]
        return frozenset(subject["digest"]["sha256"] for subject in subjects if "sha256" in subject["digest"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return frozenset()


def _invocation(certificate: Certificate) -> str | None:
    """Return the address of the workflow run that a certificate names."""
    from cryptography.hazmat import asn1

    named = (each.value for each in certificate.extensions if each.oid.dotted_string == _RUN_INVOCATION_OID)
    return next((visible(asn1.decode_der(str, value.public_bytes())) for value in named), None)
