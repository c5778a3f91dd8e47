"""TP206, TP209 and TP214: what keeps a folder from being read at all."""

from __future__ import annotations

from pathlib import Path

from evidence.run.layout import DEEPEST
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of

NO_SUCH_PATH = Rule(
    "TP091",
    "No such path",
    "A run, folder or document that was named is missing.",
    "Check the path; `trainproof runs` lists the runs there are.",
)
NO_CHECKPOINT = Rule(
    "TP050",
    "No checkpoint",
    "A run can be continued if it is in its root, stopped before its end, and has a complete checkpoint.",
    "Use the machine where it ran, or start anew; `trainproof runs` shows the status of each run.",
)
NOT_A_FILE = Rule(
    "TP206",
    "Not a regular file",
    "Evidence is read from regular files inside the folder only, so that it cannot point elsewhere.",
    "Put the file itself in its place.",
)
OTHER_CASE = Rule(
    "TP214",
    "Names of a run in other letters",
    "The names of a run's files are in small letters; a file system that knows capitals only gave them others.",
    'To replay or pack it, rename the files, for example with `for f in *; do mv "$f" "${f,,}"; done`.',
    severity="note",
)
UNREADABLE_FOLDER = Rule(
    "TP209",
    "Folder cannot be read",
    "What cannot be read cannot be checked.",
    "Check that the folder exists and that you may read it.",
)


def no_such_run(folder: Path) -> Problem:
    """Return the problem of a run folder that was named and is missing."""
    what = f"{folder} is not a run: there is no such folder."
    return problem_of(NO_SUCH_PATH, file=str(folder), what=what, why=None)


def too_deep(folder: Path) -> Problem:
    """Return the problem of a folder inside more others than any run has."""
    what = f"The folder is nested more than {DEEPEST} levels deep in the run; it was not read."
    return problem_of(
        UNREADABLE_FOLDER, file=str(folder), what=what, next="Check that this is the folder that is meant."
    )


_BEGINS = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is the pointer that Git LFS leaves in place of a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS
