"""The verb `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need


def merge(
    base: Annotated[str, typer.Argument(help="Folder of the model, or its name on the Hugging Face hub.")],
    adapters: Annotated[
        list[str], typer.Argument(metavar="ADAPTER[=WEIGHT]...", help="Folders of LoRA adapters. Default weight: 1.")
    ],
    output: Annotated[Path, typer.Option(help="New folder for the model.")],
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16. Default: as config.json of the base says.")
    ] = None,
) -> None:
    """Add LoRA adapters to a model and write it as a Hugging Face folder."""
    need("merge", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("merge"):
        from trainer.model.peft import merge_named

        merge_named(base, adapters, output, dtype=dtype)
    typer.echo(f"The model is in {output}.")
