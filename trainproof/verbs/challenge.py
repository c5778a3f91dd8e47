"""The verb `challenge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import AsJson, Fetch


def challenge(
    run: Annotated[Path, typer.Argument(help="Run folder, or a bundle.")],
    items: Annotated[Path | None, typer.Option(help="Your own questions: JSONL with id, prompt, expected.")] = None,
    generate: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Draw so many new questions of the run's kinds. Default: 50.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**53 - 1, help="Default: from the run's hash.")] = None,
    again: Annotated[int, typer.Option(min=0, help="Stated answers that are given again.")] = 10,
    run_id: Annotated[str | None, typer.Option("--run", help="Which run of a bundle that holds several.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of the model that was trained, if not found.")] = None,
    fetch: Fetch = False,
    output: Annotated[Path | None, typer.Option(help="Also write the receipt to this file.")] = None,
    as_json: AsJson = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Tell what happens on stderr, one JSON object a line.")
    ] = False,
) -> None:
    """Put new questions to a run's model, and some old ones again. Exit 1: the stated score cannot be true."""
    need("challenge", "train")
    from trainer.loop.session import exit_on_interrupt
    from trainer.model.source import local_models_only

    with exit_on_interrupt("challenge", how="and nothing was written"), local_models_only(unless=fetch):
        from trainproof.orders.challenge import ChallengeFlags, run_challenge

        flags = ChallengeFlags(items=items, generate=generate, seed=seed, again=again, run_id=run_id, model=model)
        receipt = run_challenge(run, flags, output=output, quiet=as_json or json_lines, lines=json_lines)
    from evidence.writing import as_json_text
    from trainproof.terminal.challenges import challenge_text

    sys.stdout.write(as_json_text(receipt) if as_json else challenge_text(receipt))
    raise typer.Exit(1 if receipt["result"] == "different" else 0)
