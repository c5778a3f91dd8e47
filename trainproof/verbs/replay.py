"""The verb `replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import AsJson, Fetch


def replay(
    run: Annotated[Path, typer.Argument(help="Run folder, or a bundle.")],
    whole: Annotated[bool, typer.Option("--all", help="Every segment from the seed, and every answer.")] = False,
    segments: Annotated[int, typer.Option(min=0, help="Parts to draw between the first and the last.")] = 4,
    items: Annotated[int, typer.Option(min=0, help="Answers to write anew; the others are followed.")] = 10,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Spend so much time, and say how much it covered.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Your number, which draws. Default: one drawn now.")] = None,
    run_id: Annotated[str | None, typer.Option("--run", help="Which run of a bundle that holds several.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Where the run's dataset lies here; its hash decides.")] = None,
    model: Annotated[str | None, typer.Option(help="Where the run's model lies here; its hash decides.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="With other versions too: numbers are held against a tolerance.")
    ] = False,
    fetch: Fetch = False,
    states: Annotated[Path | None, typer.Option(help="What `trainproof answer` packed for your number.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Say which states your number names, and stop.")] = False,
    output: Annotated[Path | None, typer.Option(help="Also write the receipt to this file.")] = None,
    as_json: AsJson = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Tell what happens on stderr, one JSON object a line.")
    ] = False,
) -> None:
    """Repeat a run, or parts of it, bit for bit. Exit 1: it differs; 3: it cannot be repeated here."""
    need("replay", "train")
    from trainer.loop.session import exit_on_interrupt
    from trainer.model.source import local_models_only

    with exit_on_interrupt("replay", how="and nothing was written"), local_models_only(unless=fetch):
        from trainproof.orders.replay import ReplayFlags, run_replay

        flags = ReplayFlags(
            whole=whole,
            segments=segments,
            items=items,
            minutes=minutes,
            seed=seed,
            run_id=run_id,
            anyway=anyway,
            dataset=dataset,
            model=model,
            states=states,
        )
        if ask:
            from trainproof.orders.replay import asked_for

            sys.stdout.write(asked_for(run, flags, as_json=as_json))
            raise typer.Exit(0)
        receipt, code = run_replay(run, flags, output=output, quiet=as_json or json_lines, lines=json_lines)
    from evidence.writing import as_json_text
    from trainproof.terminal.challenges import replay_text

    sys.stdout.write(as_json_text(receipt) if as_json else replay_text(receipt))
    raise typer.Exit(code)
