"""The verb `plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.run.extras import need
from evidence.run.write import as_json_text
from trainproof.verbs.options import AsJson, Settings


def plan(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu.")] = None,
    settings: Settings = None,
    explain_oom: Annotated[
        str | None,
        typer.Option(help="Explain a pasted out-of-memory text: a file, or - for standard input.", metavar="FILE|-"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a run fits on this machine before anything is spent. Exit 3: it does not."""
    if explain_oom is not None:
        from trainer.planning.out_of_memory.explain import explanation_text
        from trainproof.orders.out_of_memory import explained

        answer = explained(explain_oom, config=config, settings=settings or ())
        sys.stdout.write(as_json_text(answer) if as_json else explanation_text(answer))
        return
    if config is None:
        message = "Missing option '--config'."
        raise typer.BadParameter(message)
    need("plan", "train")
    from trainer.loop.stop import ending_at_once

    with ending_at_once("plan"):
        from trainproof.terminal.plans import plan_of, plan_text

        planned = plan_of(config, device=device, settings=settings or ())
    sys.stdout.write(as_json_text(planned) if as_json else plan_text(planned))
    raise typer.Exit(3 if planned["verdict"] == "does_not_fit" else 0)
