"""An unforeseen error: a mistake of the program, which is reported in a sentence and kept in full for a report."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of

STOPPED = 4
"""Exit code of a command that stopped on such an error."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind if it is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def kept_traceback(error: BaseException) -> Path | None:
    """Write the traceback of an error into a file of the system's folder for such, None where that has no room."""
    try:
        number, name = tempfile.mkstemp(prefix="trainproof-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return Path(name)


def mistake_of(error: BaseException, command: str) -> Problem:
    """Return the problem of a command that stopped on an error of the program; its traceback is in a file.

    Args:
        error: What was raised.
        command: The command, as the user called it: `trainproof train`.
    """
    file = kept_traceback(error)
    return problem_of(
        "TP799",
        file=command,
        what=f"It stopped on an error inside trainproof: {type(error).__name__}: {first_line(error)}",
        next=f"Report it with {file}, which holds the traceback, and the command as you typed it."
        if file
        else "Report it with the command as you typed it; there was no room on the disk to keep the traceback.",
    )
