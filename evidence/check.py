"""Every finding about a run, a folder of runs or a single document, and the grade of each run.

What must agree stands in `evidence.rules`; how findings are printed in `schemas.render` and `evidence.present`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evidence.facts import Facts, facts_of
from evidence.grade import Grade, grade_of, sentences
from evidence.read import Run, read_run
from evidence.report import Report, RunReport
from evidence.rules.across import Fingerprint, copies, fingerprint_of
from evidence.rules.catalog import CHECKS
from evidence.rules.completeness import BYSTANDER, NOT_A_RUN
from evidence.rules.finding import problem_of
from evidence.rules.placeholders import placeholders
from schemas.catalog import is_rows, kind_of
from schemas.problems import Problem, ProblemError, worst_first
from schemas.validate import read_document, read_rows

Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""


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


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run's report, and what tells the run from the others of its root."""

    report: RunReport
    fingerprint: Fingerprint


def judge(run: Run) -> Judged:
    """Return what `report_of` returns, and what `together` needs to hold the run against others."""
    facts = facts_of(run)
    findings = tuple(check_facts(run, facts))
    report = RunReport(path=run.path, grade=grade_of(run, facts, findings), findings=findings)
    return Judged(report=report, fingerprint=fingerprint_of(facts))


def report_of(run: Run) -> RunReport:
    """Return a run's findings and grade, as far as they follow from the run alone."""
    return judge(run).report


def together(judged: Sequence[Judged]) -> list[RunReport]:
    """Return the reports with the findings between runs added: a run and its copy contradict each other."""
    added: dict[Path, list[Problem]] = {}
    for problem in copies([one.fingerprint for one in judged]):
        added.setdefault(Path(problem.file).parent, []).append(problem)
    return [_with_findings(one.report, added.get(one.report.path, [])) for one in judged]


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
    judged = []
    for done, folder in enumerate(folders, start=1):
        judged.append(judge(read_run(folder)))
        if progress:
            progress(done, len(folders))
    reports = together(judged)
    return Report(
        runs=tuple(report if report.path in asked else _bystander(report) for report in reports),
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


def _bystander(report: RunReport) -> RunReport:
    """Return the report of a folder among runs that is none: a note instead of an error."""
    if report.grade.name != "not a run" or any(problem.code != NOT_A_RUN.code for problem in report.findings):
        return report
    what = report.findings[0].what
    return replace(report, findings=(problem_of(BYSTANDER, file=str(report.path), what=what),))


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
