"""The command `trainproof init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import AsJson


def init(
    model: Annotated[
        str | None, typer.Argument(help="Folder of the model, built-in name, or name on the Hugging Face hub.")
    ] = None,
    data: Annotated[
        str | None, typer.Argument(help="Rows to learn from: JSONL, Parquet, text, folder, or a built-in name.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Convert a configuration of TRL, axolotl, LLaMA-Factory or transformers instead."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="With --from: a key, as limits.steps=200.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Path of the configuration; split rows are written to the same folder.")
    ] = Path("config.yaml"),
    eval_file: Annotated[
        str | None, typer.Option("--eval", help="Evaluation set. Default: a split of rows with answers.")
    ] = None,
    on: Annotated[str | None, typer.Option(help="Machine to fit, as in `plan --on`. Default: this machine.")] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace files of the same names.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a configuration for a model and rows with the reason for each value, or convert another trainer's."""
    if source is None and (model is None or data is None or settings):
        message = (
            "Name a model and rows; --set is for --from." if settings else "Name a model and rows, or use --from FILE."
        )
        raise typer.BadParameter(message)
    if source is not None and (model or data or eval_file or on):
        message = "--from takes no model, rows, --eval or --on; pass changes as --set key=value."
        raise typer.BadParameter(message)
    need("init", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("init"):
        from evidence.writing import as_json_text
        from trainer.first_config import Order, write_conversion, write_first_config
        from trainproof.terminal.first_config import conversion_text, made_text

        if source is not None:
            converted = write_conversion(source, settings or (), output, force=force)
            text = as_json_text(converted.document()) if as_json else conversion_text(converted, output)
        else:
            order = Order(model=str(model), data=str(data), eval_set=eval_file, on=on, output=output, force=force)
            made = write_first_config(order)
            text = as_json_text(made.document()) if as_json else made_text(made)
    sys.stdout.write(text)
