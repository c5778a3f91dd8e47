"""The `trainproof` command: one verb per function; each hands over to its package at once.

What lives here: the flags of each verb, and the one place where a `ProblemError` becomes text and an exit code.
What does not: any work. Heavy imports stand inside the verbs, so that `trainproof --help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(
    name="trainproof",
    help="Fine-tune a small language model on scarce hardware and hand in evidence that stands.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; flags may be written with `-` or `_`."""
    from schemas.problems import ProblemError

    given = sys.argv[1:] if arguments is None else arguments
    try:
        app([dashed(argument) for argument in given])
    except ProblemError as error:
        from schemas.render import as_text

        sys.stderr.write(as_text(error.problems))
        raise SystemExit(error.exit_code) from None


def dashed(argument: str) -> str:
    """Return a long flag with hyphens: `--smoke_steps=2` becomes `--smoke-steps=2`; its value is left alone."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


if __name__ == "__main__":
    main()
