"""The `trainproof` command: its groups, and how errors become messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from trainproof.cli.exchange import dashboard, import_
from trainproof.cli.inspect import check, compare, note, runs, show
from trainproof.cli.judge import challenge, replay, trust
from trainproof.cli.plan import plan
from trainproof.cli.queue import push, queue
from trainproof.cli.submit import package, sign, verify
from trainproof.cli.train import demo, evaluate, export, init, merge, play, train

if TYPE_CHECKING:
    from schemas.problems import Problem

GROUPS = {
    "Train": ("init", "train", "demo", "evaluate", "play", "export", "queue", "push"),
    "Plan": ("plan",),
    "Inspect": ("runs", "show", "check", "compare", "note"),
    "Submit": ("package", "sign", "verify"),
    "Judge": ("replay", "challenge", "trust"),
    "Exchange": ("import", "dashboard"),
}
"""Commands as `--help` groups them."""

FORMER_COMMANDS = {
    "grade": (["check"], {}),
    "report": (["compare", "--html", "report.html"], {"-o": "--html", "--output": "--html"}),
    "stamp": (["sign"], {"--authority": "--timestamp"}),
    "answer": (["replay"], {"--states": "--pack-states"}),
}
"""Commands of earlier releases: the arguments that replace each, and its renamed options."""


class GroupedCommands(TyperGroup):
    """Lists the commands of `--help` by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands."""
        width = formatter.width - max(map(len, self.commands)) - 6
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


app = typer.Typer(
    name="trainproof",
    cls=GroupedCommands,
    help="Fine-tune a small language model on scarce hardware and submit a result that others can verify.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS: tuple[Callable[..., None], ...] = (
    init, train, demo, evaluate, play, export, push, plan, runs, show, check, compare, note, package, sign, verify,
    replay, challenge, dashboard,
)  # fmt: skip
for function in COMMANDS:
    app.command()(function)
app.command("import")(import_)
app.command(hidden=True)(merge)
app.add_typer(queue, name="queue")
app.add_typer(trust, name="trust")


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Options may be written with `-` or `_`."""
    from schemas.problems import INTERNAL_ERROR, ProblemError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be UTF-8, nor terminals
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            app([hyphenate(argument) for argument in replace_former_command(given)])
        finally:
            sys.stdout.flush()
    except ProblemError as error:
        _exit(error.problems, error.exit_code)
    except BrokenPipeError:
        _close_output()
        raise SystemExit(1) from None
    except OSError as error:
        from schemas.reading import os_error_problem

        _close_output()
        _exit([os_error_problem(error)], 2)
    except Exception as error:  # noqa: BLE001 - reported with its traceback in a file
        _exit([internal_error(error, " ".join(["trainproof", *given[:1]]))], INTERNAL_ERROR)


def _exit(problems: list[Problem] | tuple[Problem, ...], code: int) -> None:
    from schemas.render import render_text

    sys.stderr.write(render_text(problems))
    raise SystemExit(code) from None


def _close_output() -> None:
    """Discard the rest of standard output; otherwise Python reports the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)


def internal_error(error: BaseException, command: str) -> Problem:
    """Save the traceback of an unexpected error, and return the problem that names the file.

    Args:
        error: The exception.
        command: The command: `trainproof train`.
    """
    import tempfile
    import traceback

    from schemas.problems import first_line, problem_of

    fix = "Report it with the command as you typed it. The traceback could not be saved."
    try:
        number, name = tempfile.mkstemp(prefix="trainproof-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
        fix = f"Report it with the traceback in {Path(name)} and the command as you typed it."
    except OSError:
        pass
    what = f"Internal error in trainproof: {type(error).__name__}: {first_line(error)}"
    return problem_of("TP799", file=command, what=what, next=fix)


def replace_former_command(arguments: list[str]) -> list[str]:
    """Return the arguments with a command of an earlier release replaced by the present one."""
    command, renamed = FORMER_COMMANDS.get(arguments[0] if arguments else "", (None, {}))
    if command is None:
        return arguments
    return [*command, *(renamed.get(flag, flag) + equals + value for flag, equals, value in _split(arguments[1:]))]


def hyphenate(argument: str) -> str:
    """Return a long option with hyphens: `--smoke_steps=2` becomes `--smoke-steps=2`. Values are unchanged."""
    if not argument.startswith("--"):
        return argument
    ((flag, equals, value),) = _split([argument])
    return flag.replace("_", "-") + equals + value


def _split(arguments: list[str]) -> list[tuple[str, str, str]]:
    return [argument.partition("=") for argument in arguments]
