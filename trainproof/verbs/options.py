"""Options that several verbs have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Any key, as in --set limits.steps=200.")]
Fetch = Annotated[bool, typer.Option("--fetch", help="Ask the hub for a model that is not on this machine.")]
Root = Annotated[Path, typer.Option(help="Folder of runs.")]
RUNS = Path("submission_runs")
Resume = Annotated[
    Path | None,
    typer.Option(
        help="Continue from the newest checkpoint of this run folder. auto: of the newest run of the same name "
        "that can be continued, beside --output or attached by Kaggle; without one it begins anew."
    ),
]


class SessionName(StrEnum):
    """A session of a free platform; `trainer.loop.session_limit` knows its hours."""

    kaggle_tpu = "kaggle-tpu"
    kaggle_gpu = "kaggle-gpu"


Session = Annotated[
    SessionName | None,
    typer.Option(help="Stop in time for the last save, the evaluation and the bundle: after 9 hours, or 12 with GPUs."),
]
