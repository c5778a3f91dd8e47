"""The verb `runs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.writing import as_json_text
from trainproof.verbs.options import RUNS, AsJson


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Folder of runs. Default: submission_runs.")] = None,
    root: Annotated[Path | None, typer.Option(help="The same folder, named as other verbs name it.")] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="List archived runs too; --json always lists them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of a folder, newest first."""
    if folder is not None and root is not None:
        what = "The folder of runs was given twice; give it once."
        raise typer.BadParameter(what, param_hint="--root")
    from evidence.index.index import index_folder
    from trainproof.terminal.runs import print_runs, runs_json

    summaries = index_folder(folder or root or RUNS)
    if as_json:
        sys.stdout.write(as_json_text(runs_json(summaries)))
    else:
        print_runs(summaries, archived=archived)
