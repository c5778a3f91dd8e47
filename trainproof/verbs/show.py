"""The verb `show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.writing import as_json_text
from trainproof.verbs.options import AsJson


def show(run: Annotated[Path, typer.Argument(help="Run folder.")], as_json: AsJson = False) -> None:
    """Show the figures, the grade and the findings of one run."""
    from evidence.run import read_existing_run
    from trainproof.terminal.runs import run_json, run_text

    read = read_existing_run(run)
    sys.stdout.write(as_json_text(run_json(read)) if as_json else run_text(read))
