"""The verb `play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need


def play(
    run: Annotated[Path | None, typer.Argument(help="Run folder that holds what it trained.")] = None,
    prompt: Annotated[str | None, typer.Option(help="What to ask. Default: each line of standard input.")] = None,
    item: Annotated[str | None, typer.Option(help="Id of an item of the run's evaluation set, asked instead.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A model without a run: a folder with config.json and weights, or a built-in name."),
    ] = None,
    beside: Annotated[Path | None, typer.Option(help="Another run, whose model answers too.")] = None,
    untrained: Annotated[bool, typer.Option("--untrained", help="The model before training answers too.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="One JSON object a line for programs, in and out.")
    ] = False,
) -> None:
    """Ask a run's model, or any other, and read the answer as it is written. Never evidence: nothing is recorded."""
    if prompt is not None and item is not None:
        message = "--prompt and --item are two questions: give one of them."
        raise typer.BadParameter(message)
    if (run is None) == (model is None) or (model is not None and untrained):
        message = "Name a run, or --model alone; --untrained is the model that a run began with."
        raise typer.BadParameter(message)
    need("play", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("play", how="and nothing was recorded"):
        from trainproof.orders.play import PlayFlags, play_on
        from trainproof.terminal.playing import as_line, as_text

        flags = PlayFlags(
            run=run, model=model, prompt=prompt, item=item, beside=beside, untrained=untrained, as_lines=json_lines
        )
        play_on(flags, as_line if json_lines else as_text())
