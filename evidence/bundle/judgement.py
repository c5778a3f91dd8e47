"""The grade of runs wherever they lie: the same words for a run folder here and for its copy in a stranger's bundle.

What lives here: checking several runs together, with paths named from each run folder. What does not: what follows for
packing (`evidence.bundle.inspection`) or for a verdict (`evidence.bundle.verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evidence.check import judge, together
from evidence.grade import Grade
from evidence.read import Run, read_run
from schemas.problems import Problem


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """A run with its grade and findings; paths in them start at the run folder."""

    folder: Path
    """The run folder."""
    name: str
    """Its name."""
    run: Run
    """What it holds."""
    grade: Grade
    """What it is worth."""
    findings: tuple[Problem, ...]
    """What `trainproof check` finds."""


def judged_together(folders: Sequence[Path]) -> list[JudgedRun]:
    """Return the runs by name, checked together so that a run copied under another name is found."""
    runs = [read_run(folder) for folder in folders]
    judged = [
        JudgedRun(
            folder=run.path,
            name=run.path.resolve().name,
            run=run,
            grade=replace(report.grade, reasons=tuple(_from_run(each, run.path) for each in report.grade.reasons)),
            findings=tuple(within_run(finding, run.path) for finding in report.findings),
        )
        for run, report in zip(runs, together([judge(run) for run in runs]), strict=True)
    ]
    return sorted(judged, key=lambda each: each.name)


def within_run(problem: Problem, folder: Path) -> Problem:
    """Return a problem whose file and words name paths from the run folder, not from where it happens to lie."""
    return replace(
        problem,
        file=_from_run(problem.file, folder),
        what=_from_run(problem.what, folder),
        why=_from_run(problem.why, folder) if problem.why else None,
        expected=_from_run(problem.expected, folder) if problem.expected else None,
        next=_from_run(problem.next, folder),
    )


def _from_run(words: str, folder: Path) -> str:
    return words.replace(f"{folder}/", "").replace(str(folder), folder.resolve().name)
