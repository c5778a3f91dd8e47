"""What is said when something that was asked for cannot be written: a full disk above all."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of

OUTPUT_NOT_WRITTEN = Rule(
    "TP089",
    "Output not written",
    "What was there before is as it was, and nothing is left half made.",
    "Free space, or give another place; what was there before is as it was.",
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Return whether a write failed for want of space."""
    return error.errno in _FULL


def not_written(error: OSError, where: Path, *, what: str) -> ProblemError:
    """Return the end of a command whose output could not be written, exit code 2.

    Args:
        error: Why it could not be written.
        where: Where it was to be.
        what: What it was, as the subject of a sentence: `The export`.
    """
    if is_full(error):
        folder = next(folder for folder in (where, *where.resolve().parents) if folder.is_dir())
        free = shutil.disk_usage(folder).free
        reason, then = "the disk is full", f"Free space there ({free:,} bytes are left), or give another place."
    else:
        reason, then = f"{error.strerror or error}", "Give a place that you may write to."
    problem = problem_of(OUTPUT_NOT_WRITTEN, file=str(where), what=f"{what} could not be written: {reason}.", next=then)
    return ProblemError([problem], exit_code=2)
