"""The verb `init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import AsJson


def init(
    model: Annotated[str, typer.Argument(help="Folder of the model, built-in name, or name on the Hugging Face hub.")],
    data: Annotated[str, typer.Argument(help="Rows to learn from: JSONL, Parquet, text, folder, or a built-in name.")],
    output: Annotated[Path, typer.Option(help="The configuration; rows that are split are written beside it.")] = Path(
        "config.yaml"
    ),
    eval_file: Annotated[
        str | None, typer.Option("--eval", help="Evaluation set. Default: some rows with answers are held back.")
    ] = None,
    on: Annotated[str | None, typer.Option(help="Machine to fit, as of `plan --on`. Default: this machine.")] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace files of the same names.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at a model and rows, and write a first configuration that states why each value stands there."""
    need("init", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("init"):
        from evidence.writing import as_json_text
        from trainer.first_config import Order, write_first_config
        from trainproof.terminal.first_config import made_text

        order = Order(model=model, data=data, eval_set=eval_file, on=on, output=output, force=force)
        made = write_first_config(order)
    sys.stdout.write(as_json_text(made.document()) if as_json else made_text(made))
