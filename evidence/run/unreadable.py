"""TP206, TP209 and TP214: what keeps a folder from being read at all."""

from __future__ import annotations

from pathlib import Path

from evidence.run.layout import DEEPEST
from schemas.problems import Problem, problem_of


def no_such_run(folder: Path) -> Problem:
    """Return the problem of a run folder that was named and is missing."""
    what = f"{folder} is not a run: there is no such folder."
    return problem_of("TP091", file=str(folder), what=what, why=None)


def too_deep(folder: Path) -> Problem:
    """Return the problem of a folder inside more others than any run has."""
    what = f"The folder is nested more than {DEEPEST} levels deep in the run; it was not read."
    return problem_of("TP209", file=str(folder), what=what, next="Check that this is the folder that is meant.")


_BEGINS = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is the pointer that Git LFS leaves in place of a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS
