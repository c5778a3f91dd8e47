"""The verb `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.run.extras import need


def export(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint.")],
    output: Annotated[
        Path | None, typer.Option(help="New folder. Default: export/ or adapter/ in the run folder.")
    ] = None,
    *,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the adapters of a LoRA run, for PEFT.")] = False,
) -> None:
    """Write a run's model as a Hugging Face folder: config.json, safetensors, tokenizer."""
    need("export", "train")
    from trainer.loop.stop import ending_at_once

    with ending_at_once("export"):
        from trainer.export_run import export_run
        from trainer.recorder.progress import Watch

        with Watch() as watch:
            export_run(run, output, watch, adapter=adapter)
