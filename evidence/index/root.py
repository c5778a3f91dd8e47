"""The folders of a root that may be runs, and what is shown of a root that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

from evidence.index.summary import RunSummary
from evidence.run.unreadable import NO_SUCH_PATH, UNREADABLE_FOLDER
from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of


def run_folders(root: Path, *, follow_links: bool) -> list[str]:
    """Return the names of the folders in a root, sorted.

    Raises:
        OSError: The root cannot be read.
    """
    with os.scandir(root) as listing:
        return sorted(
            entry.name
            for entry in listing
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=follow_links)
        )


def unreadable_root(root: Path, error: OSError) -> RunSummary:
    """Return what stands in place of the runs of a root that cannot be read."""
    what = f"The folder cannot be read: {error.strerror or error}."
    problem = problem_of(UNREADABLE_FOLDER, file=str(root), what=what)
    return RunSummary(
        path=root, run_id=root.name, grade="not a run", reasons=(what,), problem_count=1, first_problem=problem
    )


def no_root(root: Path) -> Problem:
    """Return the problem of a root that is missing."""
    what = f"{root} is not a folder of runs: there is no such folder."
    then = "Check the path; `trainproof demo` makes two runs in submission_runs."
    return problem_of(NO_SUCH_PATH, file=str(root), what=what, why=None, next=then)
