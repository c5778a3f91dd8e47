"""The verb `replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.run.extras import need
from trainproof.verbs.options import AsJson, Fetch


def replay(
    run: Annotated[Path, typer.Argument(help="Run folder, or a bundle.")],
    whole: Annotated[bool, typer.Option("--all", help="Every segment from the seed, and every answer.")] = False,
    segments: Annotated[int, typer.Option(min=0, help="Segments to draw, besides the first.")] = 3,
    items: Annotated[int, typer.Option(min=0, help="Stated answers to draw.")] = 10,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Spend so much time, and say how much it covered.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Yours. Default: it follows from the run's hash.")] = None,
    run_id: Annotated[str | None, typer.Option("--run", help="Which run of a bundle that holds several.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Where the run's dataset lies here; its hash decides.")] = None,
    model: Annotated[str | None, typer.Option(help="Where the run's model lies here; its hash decides.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="With other versions too: numbers are held against a tolerance.")
    ] = False,
    fetch: Fetch = False,
    output: Annotated[Path | None, typer.Option(help="Also write the receipt to this file.")] = None,
    as_json: AsJson = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Tell what happens on stderr, one JSON object a line.")
    ] = False,
) -> None:
    """Repeat a run, or parts of it, bit for bit. Exit 1: it differs; 3: it cannot be repeated here."""
    need("replay", "train")
    from trainer.loop.stop import ending_at_once
    from trainer.model.files.hub import nothing_fetched

    with ending_at_once("replay", how="and nothing was written"), nothing_fetched(unless=fetch):
        from trainproof.orders.replay import ReplayFlags, replayed

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
        )
        receipt, code = replayed(run, flags, output=output, quiet=as_json or json_lines, lines=json_lines)
    from evidence.run.write import as_json_text
    from schemas.problems.visible import as_lines

    said = [f"{receipt['run_id']}: {receipt['said']}"]
    sys.stdout.write(as_json_text(receipt) if as_json else as_lines(said))
    raise typer.Exit(code)
