"""The verb `statement`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def statement(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    predicate: Annotated[
        bool, typer.Option("--predicate", help="The predicate alone, as actions/attest takes it.")
    ] = False,
) -> None:
    """Print an in-toto statement about a run, which others can sign: its files by hash, and what they are."""
    from datetime import UTC, datetime

    from evidence.proof.statement import run_statement
    from evidence.run import read_existing_run
    from evidence.writing import as_json_text

    stated = run_statement(read_existing_run(run), datetime.now(UTC))
    sys.stdout.write(as_json_text(stated["predicate"] if predicate else stated))
