"""Turn the exception that ended a run into its status, exit code and problems."""

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
    """How an exception ended a run."""

    status: str = "failed"
    """Status in the manifest, failed or cancelled."""
    kind: str
    """Name of the failure in the manifest's `exit.error`."""
    exit_code: int = FAILED
    problems: tuple[Problem, ...]
    traceback: str | None = None
    """Text for the log: a traceback, or the full message of an out-of-memory error."""

    @property
    def message(self) -> str:
        """All problems in one line."""
        return " ".join(problem.what for problem in self.problems)


def describe_failure(error: BaseException, *, file: str) -> Failure:
    """Return how an exception ends the run in the folder `file`."""
    if isinstance(error, KeyboardInterrupt):
        what = "The run was stopped by a second signal; the current step was not saved."
        problem = problem_of("TP721", file=file, what=what, why=None)
        return Failure(status="cancelled", kind="cancelled", exit_code=INTERRUPTED, problems=(problem,))
    if isinstance(error, ProblemError):
        return Failure(kind="problem", exit_code=error.exit_code, problems=error.problems)
    if isinstance(error, OSError):
        return _write_failure(error, file)
    if is_out_of_memory(error):
        then = f"`trainproof plan --explain-oom {file}` says what filled it and what to change."
        problem = _out_of_memory(error, file, then)
        return Failure(kind="out_of_memory", problems=(problem,), traceback=str(error))
    problem = problem_of(
        "TP799",
        file=file,
        what=f"The run stopped on an error inside trainproof: {type(error).__name__}: {first_line(error)}",
        next="Report it with log.jsonl of the run folder, whose last line holds the traceback.",
    )
    text = "".join(traceback.format_exception(error))
    return Failure(kind=type(error).__name__, problems=(problem,), traceback=text)


def _write_failure(error: OSError, file: str) -> Failure:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    then = "Check the folder and the disk, and start the run again, with --resume if a checkpoint was saved."
    what = f"The run folder could not be written: {error.strerror}."
    if is_full:
        needed = f": {error.strerror}" if error.strerror != os.strerror(error.errno or 0) else ""
        what = f"The disk is full{needed}; the run cannot be recorded any further."
    problem = problem_of("TP722", file=str(error.filename or file), what=what, next=None if is_full else then)
    return Failure(kind="disk_full" if is_full else "not_written", problems=(problem,))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that a device ran out of memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


@contextmanager
def explain_full_device(file: str) -> Iterator[None]:
    """Raise a `ProblemError` about `file` if a device runs out of memory inside the block."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ProblemError([_out_of_memory(error, file, None)], exit_code=FAILED) from error


def _out_of_memory(error: BaseException, file: str, then: str | None) -> Problem:
    return problem_of("TP723", file=file, what=f"The device ran out of memory: {first_line(error)}", next=then)
