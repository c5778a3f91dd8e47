"""The verb `evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from evidence.writing import as_json_text
from trainproof.verbs.options import AsJson


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint, not evaluated yet.")],
    eval_set: Annotated[str | None, typer.Option(help="Built-in set or JSONL file. Default: the run's own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an evaluation set with a run's newest checkpoint and add the answers to its evidence."""
    need("evaluate", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("evaluate"):
        from trainer.evaluation.evaluate import evaluate_run
        from trainer.recorder.progress import Watch

        with Watch(quiet=as_json) as watch:
            summary = evaluate_run(run, eval_set, watch)
    if as_json:
        sys.stdout.write(as_json_text(summary))
