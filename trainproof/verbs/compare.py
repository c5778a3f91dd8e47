"""The verb `compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainproof.verbs.options import AsJson


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders; the first is held against the others.")],
    require: Annotated[
        list[str] | None, typer.Option(help='What every run must reach, as in --require "exact_match>=0.4".')
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Run that the others are held against.")] = None,
    no_worse_than: Annotated[
        float | None, typer.Option(help="How much worse than the baseline exact match may be, as in 0.02.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how runs differ, and whether their scores differ by more than chance.

    Exit 1: scores cannot be compared, or a requirement is not met.
    """
    from trainproof.terminal.comparisons import format_gate, outcome_of

    outcome = outcome_of(runs, require=require or (), baseline=baseline, no_worse_than=no_worse_than)
    sys.stdout.write(format_gate(outcome, as_json=as_json))
    raise typer.Exit(0 if outcome.ok else 1)
