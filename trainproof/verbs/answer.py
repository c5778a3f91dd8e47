"""The verb `answer`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need


def answer(
    run: Annotated[Path, typer.Argument(help="Folder of your run.")],
    states: Annotated[str, typer.Option(help="Steps that the judge named, as in 280,1120.")],
    output: Annotated[Path, typer.Option(help="The file to send back.")] = Path("states.zip"),
) -> None:
    """Pack the train states that a judge's number names, each found to be the one of the sealed chain."""
    need("answer", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("answer", how="and nothing was written"):
        from trainproof.orders.replay import pack_answer

        count = pack_answer(run, states, output)
    sys.stdout.write(f"{output}: {count} of the states of {run.resolve().name}, as its chain states them.\n")
