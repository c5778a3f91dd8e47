"""The `trainproof` command: its verbs, and the one place where a `ProblemError` becomes text and an exit code."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from trainproof.verbs.answer import answer
from trainproof.verbs.challenge import challenge
from trainproof.verbs.check import check
from trainproof.verbs.compare import compare
from trainproof.verbs.dashboard import dashboard
from trainproof.verbs.demo import demo
from trainproof.verbs.evaluate import evaluate
from trainproof.verbs.export import export
from trainproof.verbs.grade import grade
from trainproof.verbs.importing import import_
from trainproof.verbs.init import init
from trainproof.verbs.merge import merge
from trainproof.verbs.note import note
from trainproof.verbs.package import package
from trainproof.verbs.plan import plan
from trainproof.verbs.play import play
from trainproof.verbs.queue import queue
from trainproof.verbs.replay import replay
from trainproof.verbs.report import report
from trainproof.verbs.runs import runs
from trainproof.verbs.show import show
from trainproof.verbs.sign import sign
from trainproof.verbs.stamp import stamp
from trainproof.verbs.train import train
from trainproof.verbs.trust import trust
from trainproof.verbs.verify import verify

if TYPE_CHECKING:
    from schemas.problems import Problem

app = typer.Typer(
    name="trainproof",
    help="Fine-tune a small language model on scarce hardware and hand in evidence that stands.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verb in (
    init,
    train,
    demo,
    plan,
    evaluate,
    play,
    export,
    merge,
    check,
    grade,
    runs,
    show,
    note,
    compare,
    report,
    package,
    sign,
    stamp,
    verify,
    replay,
    answer,
    challenge,
):
    app.command()(verb)
app.command("import")(import_)
app.add_typer(queue, name="queue")
app.add_typer(trust, name="trust")
app.command()(dashboard)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; flags may be written with `-` or `_`."""
    from schemas.problems import ProblemError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that is not UTF-8, or a terminal that knows only ASCII, costs a letter and not the answer.
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            with MistakeReporter(given):
                app([with_hyphens(argument) for argument in given])
        finally:
            sys.stdout.flush()
    except ProblemError as error:
        from schemas.render import render_text

        sys.stderr.write(render_text(error.problems))
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        raise SystemExit(_refused_by_system(error)) from None


class MistakeReporter:
    """While it is open, an unforeseen error becomes a problem with a code; its traceback is kept in a file."""

    def __init__(self, arguments: list[str]) -> None:
        """Name the command by its verb."""
        self._command = " ".join(["trainproof", *arguments[:1]])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from schemas.problems import ProblemError

        if isinstance(error, Exception) and not isinstance(error, (ProblemError, OSError)):
            from schemas.problems import INTERNAL_ERROR

            raise ProblemError([internal_error(error, self._command)], exit_code=INTERNAL_ERROR) from error


def internal_error(error: BaseException, command: str) -> Problem:
    """Save the traceback of an unexpected error to a file and return the problem that names it.

    Args:
        error: What was raised.
        command: The command, as the user called it: `trainproof train`.
    """
    from schemas.problems import first_line, problem_of

    file = _save_traceback(error)
    return problem_of(
        "TP799",
        file=command,
        what=f"Internal error in trainproof: {type(error).__name__}: {first_line(error)}",
        next=f"Report it with {file}, which holds the traceback, and the command as you typed it."
        if file
        else "Report it with the command as you typed it. The traceback could not be saved: the disk is full.",
    )


def _save_traceback(error: BaseException) -> Path | None:
    """Write a traceback to a temporary file and return its path, or None if the disk is full."""
    import tempfile
    import traceback

    try:
        number, name = tempfile.mkstemp(prefix="trainproof-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return Path(name)


def _refused_by_system(error: OSError) -> int:
    """Report what the system did not allow, and return the exit code; nothing goes to a reader that has gone away."""
    # The rest of the output cannot be written, and Python would states it again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    if isinstance(error, BrokenPipeError):
        return 1
    from schemas.reading import os_error_problem
    from schemas.render import render_text

    sys.stderr.write(render_text([os_error_problem(error)]))
    return 2


def with_hyphens(argument: str) -> str:
    """Return a long flag with hyphens: `--smoke_steps=2` becomes `--smoke-steps=2`; its value is left alone."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value
