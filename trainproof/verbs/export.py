"""The verb `export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need


class Form(StrEnum):
    """The element type of matrices in a GGUF file."""

    f16 = "f16"
    q8_0 = "q8_0"


def export(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint.")],
    output: Annotated[
        Path | None, typer.Option(help="New folder or file. Default: in export/, adapter/ or gguf/ of the run folder.")
    ] = None,
    *,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the adapters of a LoRA run, for PEFT.")] = False,
    gguf: Annotated[
        Form | None, typer.Option(help="One GGUF file for llama.cpp and Ollama, adapters merged in, its matrices so.")
    ] = None,
) -> None:
    """Write a run's model as a Hugging Face folder (config.json, safetensors, tokenizer), or as a GGUF file."""
    need("export", "train")
    if adapter and gguf is not None:
        message = "A GGUF file holds the whole model: leave --adapter or --gguf out."
        raise typer.BadParameter(message)
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("export"):
        from trainer.export_run import export_run
        from trainer.recorder.progress import Watch

        with Watch() as watch:
            export_run(run, output, watch, adapter=adapter, gguf=None if gguf is None else gguf.value)
