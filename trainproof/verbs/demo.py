"""The verb `demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import RUNS, Root


def demo(
    root: Root = RUNS,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Stop before the dashboard.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Train again, beside the runs that exist.")] = False,
) -> None:
    """Train a small model and adapters beside it, check, pack and verify, then open the dashboard: all in minutes."""
    need("demo", "train", *(() if no_serve else ("dashboard",)))
    from trainer.recorder.progress import Watch
    from trainproof.orders.demo import carry_out

    with Watch() as watch:
        code = carry_out(root, again=again, watch=watch)
    if code or no_serve:
        raise typer.Exit(code)
    from dashboard.serve import serve_anew

    serve_anew(root)
