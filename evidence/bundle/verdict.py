"""What verifying a bundle gives: the verdict, its runs, and what is proven in words. Nothing is checked here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evidence.bundle.secrets.redact import Redaction
from schemas.problems.problem import Problem
from schemas.problems.words import listed


@dataclass(frozen=True, kw_only=True)
class VerifiedRun:
    """One run of a bundle, checked and graded again."""

    run_id: str
    """Name of its folder under `runs/`."""
    stated_grade: str | None
    """Grade that the bundle states, under the name that it has today. None: it states none."""
    grade_alone: str
    """Grade that the run has by what the bundle holds."""
    grade: str
    """Grade with what the reader knows from outside of it: receipts of this user, signatures of trusted keys."""
    reasons: tuple[str, ...]
    """Why."""
    findings: tuple[Problem, ...]
    """What `trainproof check` finds; files are named from the run folder."""


@dataclass(frozen=True, kw_only=True)
class SignatureCheck:
    """Whether a signature is one of a bundle."""

    path: Path
    """The signature."""
    key_id: str
    """The key that it was checked with."""
    problems: tuple[Problem, ...]
    """Why it does not hold; empty if it does."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a bundle is worth."""

    path: Path
    """The zip, as given."""
    findings: tuple[Problem, ...]
    """What is wrong with the bundle itself, worst first; files are named from its root."""
    runs: tuple[VerifiedRun, ...]
    """Its runs, by name; empty if the archive was refused."""
    content_sha256: str | None
    """The content digest that it states and has. None: it has none that holds."""
    manifest_sha256: str | None
    """Hash of bundle_manifest.json, which states label, version, grades and reasons. None: no content digest holds."""
    partial: bool
    """Whether it is labelled as holding runs that are no results."""
    redactions: tuple[Redaction, ...]
    """Files that are said to be masked, and are."""
    files: int
    """Files inside."""
    size_bytes: int
    """Their size, unpacked."""
    signature: SignatureCheck | None = None
    """What a signature is worth. None: none was given."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the bundle, nor with its signature if one was given."""
        return self.holds and not (self.signature and self.signature.problems)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong with the bundle itself."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def proven(self) -> str:
        """What is proven and what is not, in a few sentences."""
        if not self.holds:
            return "The bundle is not what it states. Do not rely on anything inside."
        masked = len(self.redactions)
        redacted = (
            f"{masked:,} file{'s were' if masked > 1 else ' was'} redacted for it; what stood there is not proven. "
        )
        return (
            "The bundle is whole and consistent: no file differs from its lists, and every grade follows from the "
            f"documents inside. {redacted if masked else ''}{self._repeated} {self._identity}"
        )

    @property
    def _repeated(self) -> str:
        """Whether anybody whom the reader trusts has repeated or witnessed the runs, in a sentence."""
        unproven = [run.run_id for run in self.runs if run.grade != "verified"]
        if not unproven:
            return "Every run was repeated or witnessed by somebody whom you trust."
        return (
            f"That {listed(unproven)} ran as described, nobody whom you trust has seen: "
            "`trainproof replay` repeats a run."
        )

    @property
    def _identity(self) -> str:
        """What is proven of who made the bundle, in a sentence or two."""
        if self.signature is None:
            return "Who made it is not known: no signature was given, so anyone could have."
        if self.signature.problems:
            return "Who made it is not known: the signature does not hold, so anyone could have."
        return (
            f"The holder of {self.signature.key_id} signed this content. "
            "Whose key that is, you must know from elsewhere."
        )
