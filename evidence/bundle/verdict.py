"""The verdict of `trainproof verify`: problems, grades, and what they prove."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.bundle.secrets import Redaction
from evidence.grade import GradeName
from evidence.proof.timestamps import Timestamp
from schemas.formats import join_words, quantity
from schemas.problems import Problem


@dataclass(frozen=True, kw_only=True)
class VerifiedRun:
    """One run of a bundle, checked and graded again.

    Attributes:
        stated_grade: Grade that the bundle states, under its present name, or None.
        grade_alone: Grade that follows from the bundle alone.
        grade: Grade with this user's receipts and the signatures of trusted keys.
        coverage: How much of the run trusted people have reproduced, or "".
        findings: Findings of `trainproof check`, with files relative to the run folder.
        run_sha256: Hash of the run manifest, or None if it is missing.
        commit: Commit of the code that the run states, or None.
    """

    run_id: str
    stated_grade: str | None
    grade_alone: str
    grade: GradeName
    reasons: tuple[str, ...]
    coverage: str
    findings: tuple[Problem, ...]
    run_sha256: str | None = None
    commit: str | None = None
    stamps: tuple[Timestamp, ...] = ()

    @property
    def errors(self) -> list[Problem]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding.severity == "error"]


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A key that signed, and the name of its owner on the user's trust list, or None."""

    key_id: str
    name: str | None


@dataclass(frozen=True, kw_only=True)
class SignatureCheck:
    """Result of checking a signature file.

    Attributes:
        path: Signature file.
        problems: Why it is invalid; empty if it is valid.
        asked: Whether the user passed it; a signature that was only found next to the zip cannot fail the bundle.
        signers: Keys passed or trusted by the user that signed this content.
        key_id: Fingerprint of the key that made it, or None if it is invalid.
    """

    path: Path
    problems: tuple[Problem, ...]
    asked: bool = True
    signers: tuple[Signer, ...] = ()
    key_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class StampCheck:
    """Verdicts on time stamps, one sentence each, and the problems of invalid ones."""

    sentences: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True)
class AttestationCheck:
    """Result of checking a workflow attestation.

    Attributes:
        path: Attestation file.
        sentence: Who built the bundle and where, or None if it is invalid.
        invocation: URL of the workflow run.
        unchecked: Why nothing was checked, or None.
        problems: Why it is invalid.
    """

    path: Path
    sentence: str | None = None
    invocation: str | None = None
    unchecked: str | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BundleVerdict:
    """Everything that verifying a bundle found.

    Attributes:
        findings: Problems of the bundle itself, worst first, with files relative to its root.
        runs: Its runs by name; empty if the archive was refused.
        content_sha256: Content digest, or None if the bundle does not verify.
        manifest_sha256: Hash of bundle_manifest.json (label, grades and reasons), or None likewise.
        files: Number of files.
        size_bytes: Their unpacked size.
        unchecked: Files outside the runs whose content nothing confirms, such as REPORT.html.
    """

    path: Path
    findings: tuple[Problem, ...]
    runs: tuple[VerifiedRun, ...] = ()
    content_sha256: str | None = None
    manifest_sha256: str | None = None
    partial: bool = False
    redactions: tuple[Redaction, ...] = ()
    files: int = 0
    size_bytes: int = 0
    unchecked: tuple[str, ...] = ()
    signature: SignatureCheck | None = None
    stamps: StampCheck | None = None
    attestation: AttestationCheck | None = None

    @property
    def ok(self) -> bool:
        """Whether the bundle verifies, and so do its signature, time stamps and attestation."""
        return self.holds and not any(problem.severity == "error" for problem in self.witness_problems)

    @property
    def witness_problems(self) -> tuple[Problem, ...]:
        """Problems of signature, time stamps and attestation."""
        checks = (self.signature, self.stamps, self.attestation)
        return tuple(problem for check in checks if check for problem in check.problems)

    @property
    def holds(self) -> bool:
        """Whether the bundle itself verifies."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def proven(self) -> str:
        """What the verdict proves, in a few sentences."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        if not self.holds:
            yield "The bundle does not verify. Do not rely on its content."
            return
        yield "The bundle is intact: every file has its listed hash, and every grade follows from the files inside."
        if self.redactions:
            yield f"{quantity(len(self.redactions), 'file')} redacted; the masked text cannot be checked."
        if self.unchecked:
            names = [name for name in self.unchecked if "/" not in name]
            others = len(self.unchecked) - len(names)
            names += [quantity(others, "other file")] if others else []
            yield f"Not checked: {join_words(names, 'and')}."
            yield "Run `trainproof compare --html` on the bundle to write the page from the checked runs."
        unproven = [run.run_id for run in self.runs if run.grade != "verified"]
        covered = "; ".join(f"{run.run_id} ({run.coverage})" for run in self.runs if run.coverage)
        if unproven:
            yield f"Nobody you trust has reproduced {join_words(unproven)}. Run `trainproof replay` to check."
            yield from [f"Reproduced in part: {covered}."] if covered else []
        else:
            yield f"Reproduced or witnessed by someone you trust: {covered}."
        yield self._author()

    def _author(self) -> str:
        signature = self.signature
        if signature is None:
            return "Not signed: the author is unknown."
        if signature.problems:
            return "The author is unknown: the signature does not hold."
        if not signature.signers:
            return (
                f"The author is unknown: {signature.path.name} was made with {signature.key_id}, a key that you do not "
                "trust. `trainproof trust add KEY --name NAME` trusts a person's key."
            )
        if names := [each.name for each in signature.signers if each.name]:
            return f"Signed by {join_words(names, 'and')}, whom you trust ({signature.key_id})."
        return f"Signed with {signature.key_id}. Whose key this is, you must know from elsewhere."


def headline(verdict: BundleVerdict) -> str:
    """Summarize in one sentence why a bundle fails, or return "" if it verifies.

    A claimed score that the predictions contradict comes first, then other contradictions, then changed files.
    """
    if verdict.ok:
        return ""
    errors = [(run.run_id, error) for run in verdict.runs for error in run.errors]
    contradictions = [each for each in errors if each[1].code.startswith("TP3")]
    contradictions.sort(key=lambda each: each[1].code != "TP340")
    changed = [finding.file for finding in verdict.findings if finding.code == "TP823"]
    more = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
    causes = [
        *(f"{run_id}: {error.what}" for run_id, error in contradictions),
        *(f"{name}{more} changed since the bundle was built." for name in changed[:1]),
        *(each.what for each in (*verdict.findings, *verdict.witness_problems) if each.severity == "error"),
    ]
    return causes[0]
