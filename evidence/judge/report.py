"""What checking gives: a report for each run and one for all that was requested. Nothing is checked or printed here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.judge.grade import Grade
from schemas.problems.problem import Problem
from schemas.problems.render import as_dicts


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run folder, what was found in it, and its grade."""

    path: Path
    grade: Grade
    findings: tuple[Problem, ...]
    manifest_sha256: str | None = None
    """Hash of the manifest of a consistent run, to which proofs from outside its folder are bound. None: another."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found at the paths that were requested.

    Attributes:
        runs: A report for each run folder, in the order requested, the runs of a root by name.
        documents: The single documents that were requested.
        findings: The problems of those documents.
    """

    runs: tuple[RunReport, ...]
    documents: tuple[Path, ...]
    findings: tuple[Problem, ...]

    @property
    def all_findings(self) -> tuple[Problem, ...]:
        """Every finding, those of runs first, in the order of paths."""
        return (*(problem for run in self.runs for problem in run.findings), *self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is not an error; warnings and notes are not a reason to stop a build."""
        return all(problem.severity != "error" for problem in self.all_findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `trainproof check --json` prints it."""
        return {
            "runs": [
                {
                    "path": str(run.path),
                    **run.grade.document(),
                    "findings": as_dicts(run.findings),
                }
                for run in self.runs
            ],
            "documents": [
                {
                    "path": str(path),
                    "findings": as_dicts(problem for problem in self.findings if problem.file == str(path)),
                }
                for path in self.documents
            ],
        }
