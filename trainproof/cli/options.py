"""What several commands share: options, and the start of commands that use the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.extras import need

if TYPE_CHECKING:
    from launch.phases import Phase

RUNS = Path("submission_runs")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json-lines", help="Print events on stderr, one JSON object per line.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Set any key, such as --set limits.steps=200.")]
SmokeConfig = Annotated[
    Path | None, typer.Option(help="Second file, whose keys override the first; makes it a smoke run.")
]
Fetch = Annotated[bool, typer.Option("--fetch", help="Download a model that is not on this machine.")]
Phases = Annotated[Path | None, typer.Option(help="Phase file: runs that build on each other, merged at the end.")]
Force = Annotated[bool, typer.Option("--force", help="Start even if the plan does not fit.")]
Root = Annotated[Path, typer.Option(help="Folder of runs.")]
RunOfBundle = Annotated[str | None, typer.Option("--run", help="Run of a bundle with several.")]


@contextmanager
def using_trainer(command: str, *, how: str = "before it began; nothing was written") -> Iterator[None]:
    """Check that the trainer's packages are installed, and on Ctrl-C exit with code 130 and `COMMAND was stopped HOW`.

    Raises:
        ProblemError: A package is not installed (exit code 2).
    """
    need(command, "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt(command, how=how):
        yield


def load_phases(
    path: Path, given: dict[str, object], *allowed: str, place: str = "local"
) -> tuple[dict[str, Any], list[Phase]]:
    """Return the content of a phase file and its phases, after refusing `given` options that are not `allowed`."""
    from launch.phases import read_phases
    from trainer.config.load import load_config
    from trainer.config.tree import to_document

    stated = {name for name, value in given.items() if value is not None and value is not False}
    if others := stated - {"phases", *allowed}:
        message = f"--phases takes every setting from its file: omit {', '.join(sorted(others))}."
        raise typer.BadParameter(message)
    return read_phases(path, lambda source, stated: to_document(load_config(source, settings=stated)), place=place)
