"""The `trainproof` command: its groups, and how errors become messages and exit codes."""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from schemas.problems import INTERNAL_ERROR, Problem, ProblemError, first_line, problem_of
from schemas.render import render_text
from trainproof.neighbours import HOME

GROUPS = {
    "Train": ("init", "train", "demo", "evaluate", "play", "export", "queue", "push", "sweep"),
    "Plan": ("plan",),
    "Inspect": ("runs", "show", "check", "compare", "note"),
    "Submit": ("package", "sign", "verify"),
    "Judge": ("replay", "challenge", "trust"),
    "Exchange": ("import", "dashboard"),
}
"""Commands as `--help` groups them. Each group is a module of this package."""

MODULES = {name: title.lower() for title, names in GROUPS.items() for name in names} | {
    "queue": "queue",
    "push": "queue",
    "sweep": "queue",
    "merge": "train",
}

FORMER_COMMANDS = {
    "grade": (["check"], {}),
    "report": (["compare", "--html", "report.html"], {"-o": "--html", "--output": "--html"}),
    "stamp": (["sign"], {"--authority": "--timestamp"}),
    "answer": (["replay"], {"--states": "--pack-states"}),
}
"""Commands of earlier releases: the arguments that replace each, and its renamed options."""


class LazyCommands(Mapping[str, Any]):
    """The commands by name. A module is imported for its first command, so that `--help` is fast."""

    def __getitem__(self, name: str) -> Any:
        found = getattr(import_module(f"trainproof.cli.{MODULES[name]}"), "import_" if name == "import" else name)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
            found.command(name, hidden=name == "merge")(function)
        return get_command(found)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class GroupedCommands(TyperGroup):
    """Lists the commands of `--help` by group, without importing them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = LazyCommands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each command's docstring."""
        sentences = {}
        for module in set(MODULES.values()):
            for node in ast.parse(Path(__file__).with_name(f"{module}.py").read_text("utf-8")).body:
                if isinstance(node, ast.FunctionDef):
                    sentences[node.name.rstrip("_")] = (ast.get_docstring(node) or "").partition(".")[0]
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, sentences[name]) for name in names])


app = typer.Typer(cls=GroupedCommands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(value: bool) -> None:
    if value:
        try:
            version = metadata.version("trainproof")
        except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
            project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))
            version = f"{project['project']['version']} (not installed)"
        typer.echo(f"trainproof {version}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def trainproof(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Fine-tune a small language model on scarce hardware and submit a result that others can verify."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Options may be written with `-` or `_`."""
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
        _exit([save_internal_error(error, " ".join(["trainproof", *given[:1]]))], INTERNAL_ERROR)


def _exit(problems: Sequence[Problem], code: int) -> None:
    sys.stderr.write(render_text(problems))
    raise SystemExit(code) from None


def _close_output() -> None:
    """Discard the rest of standard output; otherwise Python reports the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)


def save_internal_error(error: BaseException, command: str) -> Problem:
    """Save the traceback of an unexpected error of a command, and return the problem that names the file."""
    try:
        number, name = tempfile.mkstemp(prefix="trainproof-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
        fix = f"Report it with the traceback in {name} and the command as you typed it."
    except OSError:
        fix = "Report it with the command as you typed it. The traceback could not be saved."
    what = f"Internal error in trainproof: {type(error).__name__}: {first_line(error)}"
    return problem_of("TP799", file=command, what=what, next=fix)


def replace_former_command(arguments: list[str]) -> list[str]:
    """Return the arguments with a command of an earlier release replaced by the present one."""
    if not arguments or arguments[0] not in FORMER_COMMANDS:
        return arguments
    command, renamed = FORMER_COMMANDS[arguments[0]]
    return [*command, *(re.sub("^-[^=]+", lambda flag: renamed.get(flag[0], flag[0]), each) for each in arguments[1:])]


def hyphenate(argument: str) -> str:
    """Return a long option with hyphens: `--smoke_steps=2` becomes `--smoke-steps=2`. Values are unchanged."""
    return re.sub("^--[^=]+", lambda flag: flag[0].replace("_", "-"), argument)
