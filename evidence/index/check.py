"""Every finding about a run, a folder of runs or a single document, and the grade of each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from evidence.index.parallel import Progress, read_entries
from evidence.judge.judgement import together
from evidence.judge.report import Report, RunReport
from evidence.proof.verification import with_proofs
from evidence.run import layout
from schemas.catalog import is_rows, kind_of
from schemas.problems import Problem, ProblemError, problem_of, worst_first
from schemas.reading import read_rows
from schemas.validate import read_document


def check_paths(paths: Iterable[Path], *, progress: Progress | None = None) -> Report:
    """Check runs, folders of runs and single documents.

    A folder that holds a file which only a run writes is a run. Any other folder is a root: each folder in it is a run,
    folders whose name begins with a dot and files beside them left out. A folder among runs that is not a run is graded
    `not a run` with a note; a folder that was requested and holds no run at all is an error.

    Raises:
        ProblemError: A path does not exist, or a file is not a document of trainproof (exit code 2).
    """
    asked = [Path(path) for path in paths]
    _refuse_unknown(asked)
    documents = tuple(path for path in asked if not path.is_dir())
    folders = [folder for path in asked if path.is_dir() for folder in run_folders(path)]
    reports = with_proofs(together([entry.judged for entry in read_entries(folders, progress=progress)]))
    return Report(
        runs=tuple(report if report.path in asked else _bystander(report) for report in reports),
        documents=documents,
        findings=tuple(problem for path in documents for problem in check_document(path)),
    )


def check_document(path: Path) -> list[Problem]:
    """Return the problems of a single document, whose kind follows from its name."""
    kind = kind_of(path.name) or ""
    read = read_rows(path, kind) if is_rows(kind) else read_document(path, kind)
    return list(worst_first(read.problems))


def run_folders(path: Path) -> list[Path]:
    """Return the folder itself if it is a run or holds no folders, otherwise the folders in it, by name."""
    if read_is_run(path):
        return [path]
    try:
        children = sorted(child for child in path.iterdir() if child.is_dir() and not layout.is_passed_over(child.name))
    except OSError:
        return [path]
    return children if any(read_is_run(child) for child in children) else [path]


def read_is_run(folder: Path) -> bool:
    """Return whether a folder holds anything under the name of a file that only a run writes."""
    try:
        return layout.holds_run(child.name.lower() for child in folder.iterdir())
    except OSError:
        return True  # It cannot be looked into; reading it as a run states why.


def _bystander(report: RunReport) -> RunReport:
    """Return the report of a folder among runs that is not a run: a note instead of an error."""
    if report.grade.name != "not a run" or any(problem.code != "TP501" for problem in report.findings):
        return report
    what = report.findings[0].what
    return replace(report, findings=(problem_of("TP502", file=str(report.path), what=what),))


def _refuse_unknown(paths: Sequence[Path]) -> None:
    problems = [problem for path in paths for problem in _unusable(path)]
    if problems:
        raise ProblemError(problems, exit_code=2)


def _unusable(path: Path) -> list[Problem]:
    if not path.exists():
        what, then = f"{path} does not exist.", "Check the path; give a run, a folder of runs or a document."
    elif not path.is_dir() and not path.is_file():
        what, then = f"{path} is neither a file nor a folder.", "Give a run, a folder of runs or a document."
    elif path.is_file() and path.suffix == ".zip":
        what, then = f"{path} is a bundle, not a run.", f"Use `trainproof verify {path}`."
    elif path.is_file() and kind_of(path.name) is None:
        what = f"{path} is not a document that trainproof writes, by its name."
        then = "Give a run folder, a folder of runs, or a document under the name that a run gives it."
    else:
        return []
    return [problem_of("TP091", file=str(path), what=what, why=None, next=then)]
