"""What checking gives: a report for each run and one for all, as text, JSON, SARIF or GitHub annotations.

Nothing is checked or printed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.judge.grade import GRADES, Grade
from evidence.run.write import as_json_text
from schemas.formats import as_lines, join_words, quantity
from schemas.problems import Problem, ProblemError, problem_of
from schemas.render import as_dicts, as_github, as_sarif, as_text


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
                {"path": str(run.path), **run.grade.document(), "findings": as_dicts(run.findings)} for run in self.runs
            ],
            "documents": [
                {
                    "path": str(path),
                    "findings": as_dicts(problem for problem in self.findings if problem.file == str(path)),
                }
                for path in self.documents
            ],
        }


def report_text(report: Report) -> str:
    """Return a report as the terminal shows it: each run with its findings, worst first, and one line at the end."""
    width = max((len(str(run.path)) for run in report.runs), default=0)
    parts = [
        as_lines([f"{str(run.path).ljust(width)}  {_verdict(run)}", *_by_whom(run)]) + as_text(run.findings)
        for run in report.runs
    ]
    for path in report.documents:
        found = [problem for problem in report.findings if problem.file == str(path)]
        parts.append(as_lines([f"{path}  {_counts(found) or 'valid'}"]) + as_text(found))
    return "".join([*parts, as_lines([_summary(report)])])


def report_as(report: Report, forms: Sequence[str]) -> str:
    """Return a report in the one form requested: json, github or sarif; as text where none is.

    Raises:
        ProblemError: More than one form was requested (exit code 2).
    """
    if len(forms) > 1:
        raise ProblemError([_one_form_at_a_time(forms)], exit_code=2)
    writers: dict[str, Callable[[Report], str]] = {
        "json": lambda report: as_json_text(report.to_json()),
        "github": lambda report: as_github(report.all_findings),
        "sarif": lambda report: as_sarif(report.all_findings),
    }
    return writers[forms[0]](report) if forms else report_text(report)


def _by_whom(run: RunReport) -> list[str]:
    """Return who verified a run, when and how much of it: the word is never shown without."""
    return [f"  {run.grade.reasons[0]}"] if run.grade.name == "verified" else []


def grades_text(reports: Sequence[RunReport]) -> str:
    """Return each run with its grade, and the reasons below."""
    width = max((len(str(run.path)) for run in reports), default=0)
    lines = []
    for run in reports:
        lines.append(f"{str(run.path).ljust(width)}  {run.grade.words}")
        lines += [f"  {reason}" for reason in run.grade.reasons]
    return as_lines(lines)


def grades_json(reports: Sequence[RunReport]) -> list[dict[str, Any]]:
    """Return path, grade, coverage and reasons of each run."""
    return [{"path": str(run.path), **run.grade.document()} for run in reports]


def _one_form_at_a_time(forms: Sequence[str]) -> Problem:
    asked = join_words([f"--{form}" for form in forms], last="and")
    what = f"{asked} were given; one output has one form."
    then = "Give one of them; run the command again for another form."
    return problem_of("TP092", file="", what=what, why=None, next=then)


def _verdict(run: RunReport) -> str:
    counts = _counts(run.findings)
    return f"{run.grade.words}: {counts}" if counts else run.grade.words


def _summary(report: Report) -> str:
    grades = Counter(run.grade.name for run in report.runs)
    parts = []
    if report.runs:
        each = ", ".join(f"{grades[name]} {name}" for name in GRADES if grades[name])
        parts.append(f"{quantity(len(report.runs), 'run')}: {each}")
    if report.documents:
        parts.append(quantity(len(report.documents), "document"))
    return "; ".join([*parts, _counts(report.all_findings) or "nothing found"]) + "."


def _counts(problems: Iterable[Problem]) -> str:
    severities = Counter(problem.severity for problem in problems)
    return ", ".join(
        quantity(severities[severity], severity) for severity in ("error", "warning", "note") if severities[severity]
    )
