"""What went wrong with a run, in the words that its manifest and its user get.

Each kind of failure stands here once. Any other failure is a mistake of ours; its traceback goes into
log.jsonl, so that it can be reported.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax

from schemas.problems import INTERNAL_ERROR, Problem, ProblemError, first_line, problem_of

FAILED = INTERNAL_ERROR
INTERRUPTED = 5


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How a run ended by an exception."""

    status: str
    """failed or cancelled: a status of the manifest."""
    kind: str
    """Name of the failure in the manifest's `exit.error`."""
    exit_code: int
    problems: tuple[Problem, ...]
    traceback: str | None = None
    """What the log keeps of it in full: of a mistake of ours, and of a device that was full."""

    @property
    def message(self) -> str:
        """What happened, in one line."""
        return " ".join(problem.what for problem in self.problems)


def failure_of(error: BaseException, *, file: str) -> Failure:
    """Return what an exception means for the run in the folder `file`."""
    if isinstance(error, KeyboardInterrupt):
        return cancellation(file)
    if isinstance(error, ProblemError):
        return Failure(status="failed", kind="problem", exit_code=error.exit_code, problems=error.problems)
    if isinstance(error, OSError):
        return not_written(error, file)
    if is_out_of_memory(error):
        return out_of_memory(error, file, is_recorded=True)
    return internal(error, file)


def cancellation(file: str) -> Failure:
    """Return the end of a run that was interrupted twice."""
    problem = problem_of(
        "TP721",
        file=file,
        what="The run was stopped at once by a second signal; the step under way was not saved.",
        why=None,
    )
    return Failure(status="cancelled", kind="cancelled", exit_code=INTERRUPTED, problems=(problem,))


def not_written(error: OSError, file: str) -> Failure:
    """Return the end of a run whose evidence could not be written: a full disk above all."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    where = error.filename or file
    needed = f": {error.strerror}" if full and error.strerror != os.strerror(error.errno or 0) else ""
    then = "Check the folder and the disk, and start the run again, with --resume if a checkpoint was saved."
    problem = problem_of(
        "TP722",
        file=str(where),
        what=f"The disk is full{needed}; the run cannot be recorded any further."
        if full
        else f"The run folder could not be written: {error.strerror}.",
        next=None if full else then,
    )
    return Failure(status="failed", kind="disk_full" if full else "not_written", exit_code=FAILED, problems=(problem,))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device had no room for what was to be put or computed there."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


@contextmanager
def explain_full_device(file: str) -> Iterator[None]:
    """Report a device without room as a problem of the folder `file`, where there is no run to be sealed."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ProblemError(out_of_memory(error, file).problems, exit_code=FAILED) from error


def out_of_memory(error: BaseException, file: str, *, is_recorded: bool = False) -> Failure:
    """Return the end of a run that needed more memory than its device has.

    Args:
        error: JAX's message; all of it is kept in a run's log, where it can be explained.
        file: the run folder.
        is_recorded: whether the folder is that of the run that failed.
    """
    problem = problem_of(
        "TP723",
        file=file,
        what=f"The device ran out of memory: {first_line(error)}",
        next=f"`trainproof plan --explain-oom {file}` says what filled it and what to change." if is_recorded else None,
    )
    return Failure(status="failed", kind="out_of_memory", exit_code=FAILED, problems=(problem,), traceback=str(error))


def internal(error: BaseException, file: str) -> Failure:
    """Return the end of a run by a mistake in trainproof."""
    problem = problem_of(
        "TP799",
        file=file,
        what=f"The run stopped on an error inside trainproof: {type(error).__name__}: {first_line(error)}",
        next="Report it with log.jsonl of the run folder, whose last line holds the traceback.",
    )
    return Failure(
        status="failed",
        kind=type(error).__name__,
        exit_code=FAILED,
        problems=(problem,),
        traceback="".join(traceback.format_exception(error)),
    )
