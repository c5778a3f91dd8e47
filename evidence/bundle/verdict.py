"""What verifying a bundle gives: the verdict, its runs, and what is proven in words. Nothing is checked here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.bundle.secrets.redact import Redaction
from evidence.judge.grade import GradeName
from evidence.proof.stamps.record import KeptStamp
from schemas.formats import join_words, quantity
from schemas.problems import Problem


@dataclass(frozen=True, kw_only=True)
class VerifiedRun:
    """One run of a bundle, checked and graded again."""

    run_id: str
    """Name of its folder under `runs/`."""
    stated_grade: str | None
    """Grade that the bundle states, under the name that it has today. None: it states none."""
    grade_alone: str
    """Grade that the run has by what the bundle holds."""
    grade: GradeName
    """Grade with what the reader knows from outside of it: receipts of this user, signatures of trusted keys."""
    reasons: tuple[str, ...]
    """Why."""
    coverage: str
    """How much of it was repeated by a person whom the reader trusts. Empty: nothing was."""
    findings: tuple[Problem, ...]
    """What `trainproof check` finds; files are named from the run folder."""
    predictions: int | None = None
    """How many answers it has. None: they are missing or unreadable."""
    run_sha256: str | None = None
    """Hash of its manifest. None: it is missing."""
    commit: str | None = None
    """Commit of the code that it states. None: it states none."""
    stamps: tuple[KeptStamp, ...] = ()
    """Its time stamps, each beside the hash that it is to be of."""


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A key that signed."""

    key_id: str
    """Its id."""
    name: str | None
    """Whose it is by the reader's trust list. None: it is not on it."""


@dataclass(frozen=True, kw_only=True)
class SignatureCheck:
    """Whether a signature is one of a bundle."""

    path: Path
    """The signature file."""
    problems: tuple[Problem, ...]
    """Why it does not hold; empty if it does."""
    asked: bool = True
    """Whether the reader requested it. What only lies beside the zip is reported, and never fails it."""
    signers: tuple[Signer, ...] = ()
    """Keys that the reader named or trusts, and that signed what it carries."""
    unknown: int = 0
    """Signatures in it by other keys."""
    stated_at: str | None = None
    """When its statement states that it was made."""


@dataclass(frozen=True, kw_only=True)
class StampCheck:
    """Verdicts on the time stamps of the runs."""

    sentences: tuple[str, ...]
    """Each begins with the name of its run."""
    problems: tuple[Problem, ...]
    """Those that do not hold."""


@dataclass(frozen=True, kw_only=True)
class AttestationCheck:
    """What the attestation of a workflow states of the bundle."""

    path: Path
    """Its file."""
    sentence: str | None
    """Who made the bundle, and where. None: it does not hold."""
    invocation: str | None
    """Address of the workflow's run, whose log states what it did."""
    unchecked: str | None
    """Why it is not believed all the same. None: nothing speaks against it."""
    problems: tuple[Problem, ...]
    """Why it does not hold; empty if it does."""


@dataclass(frozen=True, kw_only=True)
class BundleVerdict:
    """What a bundle is worth."""

    path: Path
    """The zip, as given."""
    findings: tuple[Problem, ...]
    """What is wrong with the bundle itself, worst first; files are named from its root."""
    runs: tuple[VerifiedRun, ...]
    """Its runs, by name; empty if the archive was refused."""
    content_sha256: str | None
    """The content digest that it states and has. None: it is missing or does not hold."""
    manifest_sha256: str | None
    """Hash of bundle_manifest.json, which states label, version, grades and reasons. None: no content digest holds."""
    partial: bool
    """Whether it is labelled as holding runs that are not results."""
    redactions: tuple[Redaction, ...]
    """Files that are reported to be masked, and are."""
    files: int
    """Files inside."""
    size_bytes: int
    """Their size, unpacked."""
    signature: SignatureCheck | None = None
    """What a signature is worth. None: none was given."""
    stamps: StampCheck | None = None
    """What time stamps are worth. None: they are missing."""
    attestation: AttestationCheck | None = None
    """What an attestation is worth. None: none was given."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the bundle, nor with what its witnesses attest."""
        return self.holds and not any(problem.severity == "error" for problem in self.witness_problems)

    @property
    def witness_problems(self) -> tuple[Problem, ...]:
        """What is wrong with signature, time stamps and attestation."""
        checks = (self.signature, self.stamps, self.attestation)
        return tuple(problem for check in checks if check for problem in check.problems)

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
        """Whether anyone whom the reader trusts has repeated or witnessed the runs, in a sentence."""
        unproven = [run.run_id for run in self.runs if run.grade != "verified"]
        if not unproven:
            return f"Repeated or witnessed by somebody whom you trust: {self._covered(self.runs)}."
        parts = self._covered([run for run in self.runs if run.coverage])
        partly = f" Of it was repeated: {parts}." if parts else ""
        return (
            f"That {join_words(unproven)} ran as described, nobody whom you trust has seen: "
            "`trainproof replay` repeats a "
            f"run.{partly}"
        )

    @staticmethod
    def _covered(runs: Sequence[VerifiedRun]) -> str:
        return "; ".join(f"{run.run_id} ({run.coverage})" for run in runs)

    @property
    def _identity(self) -> str:
        """What is proven of who made the bundle, in a sentence or two."""
        signature = self.signature
        if signature is None:
            return "Who made it is not known: no signature was given, so anyone could have."
        if signature.problems:
            return "Who made it is not known: the signature does not hold, so anyone could have."
        if not signature.signers:
            return (
                f"Who made it is not known: {signature.path.name} beside it holds "
                f"{quantity(signature.unknown, 'signature')} by keys that you do not trust. `--public-key FILE` checks "
                "one, and `trainproof trust add FILE --name NAME` remembers it."
            )
        dated = f", in a statement of {signature.stated_at}" if signature.stated_at else ""
        trusted = [f"{each.name} ({each.key_id})" for each in signature.signers if each.name]
        if trusted:
            return f"{join_words(trusted, 'and')}, whom you trust, signed this content{dated}."
        ids = join_words([each.key_id for each in signature.signers], "and")
        return f"The holder of {ids} signed this content{dated}. Whose key that is, you must know from elsewhere."
