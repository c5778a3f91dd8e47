"""Every finding about a run, a folder of runs or a single document, and the grade of each run.

What must agree stands in `evidence.rules`; how findings are printed in `schemas.render` and `evidence.present`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.facts import Facts, facts_of
from evidence.grade import Grade, grade_of, sentences
from evidence.read import Run, read_run
from evidence.rules.across import Fingerprint, copies, fingerprint_of
from evidence.rules.catalog import CHECKS
from evidence.rules.completeness import BYSTANDER, NOT_A_RUN
from evidence.rules.finding import problem_of
from evidence.rules.placeholders import placeholders
from schemas.catalog import is_rows, kind_of
from schemas.problems import Problem, ProblemError, worst_first
from schemas.render import as_dicts
from schemas.validate import read_document, read_rows

Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run folder, what was found in it, and its grade."""

    path: Path
    grade: Grade
    findings: tuple[Problem, ...]

    @property
    def has_errors(self) -> bool:
        """Whether any finding is an error."""
        return any(problem.severity == "error" for problem in self.findings)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found at the paths that were asked for.

    Attributes:
        runs: A report for each run folder, in the order asked for, the runs of a root by name.
        documents: The single documents that were asked for.
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
        """Whether there is no error; warnings and notes are no reason to stop a build."""
        return all(problem.severity != "error" for problem in self.all_findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `trainproof check --json` prints it."""
        return {
            "runs": [
                {
                    "path": str(run.path),
                    "grade": run.grade.name,
                    "reasons": list(run.grade.reasons),
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


def check_run(run: Run) -> list[Problem]:
    """Return every problem of a run, worst first: shapes, hashes, and everything that must agree."""
    return check_facts(run, facts_of(run))


def check_facts(run: Run, facts: Facts) -> list[Problem]:
    """Return what `check_run` returns, from facts that are there already."""
    if not run.is_run:
        what = f"{run.path.name or run.path} holds none of the files that a run writes."
        return list(run.problems) or [problem_of(NOT_A_RUN, file=str(run.path), what=what)]
    problems = [*run.problems, *run.row_problems(), *placeholders(run)]
    for check in CHECKS:
        problems.extend(check(facts))
    return list(worst_first(run.with_line(problem) for problem in problems))


def report_run(run: Run) -> RunReport:
    """Return a run's findings and grade."""
    return _judged(run)[0]


def check_paths(paths: Iterable[Path], *, progress: Progress | None = None) -> Report:
    """Check runs, folders of runs and single documents.

    A folder that holds a file which a run writes is a run. Any other folder is a root: each folder in it is a run,
    folders whose name begins with a dot and files beside them left out. A folder among runs that is none is graded
    `not a run` with a note; a folder that was asked for and holds no run at all is an error.

    Raises:
        ProblemError: A path does not exist, or a file is no document of trainproof (exit code 2).
    """
    asked = [Path(path) for path in paths]
    _refuse_unknown(asked)
    documents = tuple(path for path in asked if not path.is_dir())
    folders = [folder for path in asked if path.is_dir() for folder in run_folders(path)]
    reports, fingerprints = [], []
    for done, folder in enumerate(folders, start=1):
        report, fingerprint = _judged(read_run(folder), is_asked_for=folder in asked)
        reports.append(report)
        fingerprints.append(fingerprint)
        if progress:
            progress(done, len(folders))
    return Report(
        runs=tuple(_with_copies(reports, fingerprints)),
        documents=documents,
        findings=tuple(problem for path in documents for problem in check_document(path)),
    )


def check_document(path: Path) -> list[Problem]:
    """Return the problems of a single document, whose kind its name tells."""
    kind = kind_of(path.name) or ""
    read = read_rows(path, kind) if is_rows(kind) else read_document(path, kind)
    return list(worst_first(read.problems))


def run_folders(path: Path) -> list[Path]:
    """Return the folder itself if it is a run or holds no folders, otherwise the folders in it, by name."""
    if read_is_run(path):
        return [path]
    try:
        children = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    except OSError:
        return [path]
    return children if any(read_is_run(child) for child in children) else [path]


def read_is_run(folder: Path) -> bool:
    """Return whether a folder holds anything under the name of a file that a run writes."""
    try:
        return any(kind_of(child.name) for child in folder.iterdir())
    except OSError:
        return True  # It cannot be looked into; reading it as a run says why.


def _judged(run: Run, *, is_asked_for: bool = True) -> tuple[RunReport, Fingerprint]:
    facts = facts_of(run)
    findings = check_facts(run, facts)
    grade = grade_of(run, facts, findings)
    if grade.name == "not a run" and not is_asked_for and not run.problems:
        findings = [problem_of(BYSTANDER, file=str(run.path), what=findings[0].what)]
    return RunReport(path=run.path, grade=grade, findings=tuple(findings)), fingerprint_of(facts)


def _with_copies(reports: Sequence[RunReport], fingerprints: Sequence[Fingerprint]) -> list[RunReport]:
    """Return the reports with the findings between runs added; a copy contradicts the run it was made from."""
    added = copies(fingerprints)
    return [
        _with_findings(report, [problem for problem in added if Path(problem.file).parent == fingerprint.folder])
        for report, fingerprint in zip(reports, fingerprints, strict=True)
    ]


def _with_findings(report: RunReport, added: Sequence[Problem]) -> RunReport:
    if not added:
        return report
    before = report.grade.reasons if report.grade.name == "contradictory" else ()
    grade = Grade(name="contradictory", reasons=(*sentences(added), *before))
    return replace(report, grade=grade, findings=worst_first((*report.findings, *added)))


def _refuse_unknown(paths: Sequence[Path]) -> None:
    problems = [problem for path in paths for problem in _unusable(path)]
    if problems:
        raise ProblemError(problems, exit_code=2)


def _unusable(path: Path) -> list[Problem]:
    if not path.exists():
        what, then = f"{path} does not exist.", "Check the path; give a run, a folder of runs or a document."
    elif path.is_file() and path.suffix == ".zip":
        what, then = f"{path} is a bundle, not a run.", f"Use `trainproof verify {path}`."
    elif path.is_file() and kind_of(path.name) is None:
        what = f"{path} is not a document that trainproof writes, by its name."
        then = "Give a run folder, a folder of runs, or a document under the name that a run gives it."
    else:
        return []
    return [Problem(code="TP091", severity="error", file=str(path), what=what, next=then)]
