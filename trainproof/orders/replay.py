"""What `replay` was asked for, carried out: the run found, repeated, the receipt sealed and kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.bundle.unpacked import unpacked_run
from schemas.problems.problem import ProblemError
from schemas.problems.render import as_dicts
from trainer.recorder.progress import Watch
from trainer.replay.replay import ReplayRequest, replay
from trainproof.orders.challenge import keep


@dataclass(frozen=True, kw_only=True)
class ReplayFlags:
    """The command's flags."""

    whole: bool
    segments: int
    items: int
    minutes: float | None
    seed: int | None
    run_id: str | None = None
    anyway: bool = False
    dataset: str | None = None
    model: str | None = None


def replayed(
    path: Path, flags: ReplayFlags, *, output: Path | None, quiet: bool, lines: bool
) -> tuple[dict[str, Any], int]:
    """Repeat a run or a bundle's, keep the receipt among this user's own, and return it with the exit code.

    Args:
        path: run folder or bundle.
        flags: what was asked for.
        output: where the receipt is written too. None: nowhere.
        quiet: show no progress.
        lines: tell what happens on stderr, one JSON object a line.

    Raises:
        ProblemError: exit code 2, 3 or 4; see `replay`. 1: the bundle does not hold.
    """

    def tell(event: dict[str, Any]) -> None:
        if lines:
            sys.stderr.write(json.dumps(event, ensure_ascii=False) + "\n")
            sys.stderr.flush()

    try:
        with unpacked_run(path, flags.run_id) as folder, Watch(quiet=quiet) as watch:
            receipt, code = replay(request_of(folder, flags), watch.say, shown_too(watch, tell))
        keep(receipt, output)
    except ProblemError as error:
        tell({"event": "refused", "problems": as_dicts(error.problems)})
        raise
    tell({"event": "done", "result": receipt["result"], "said": receipt["said"], "exit_code": code})
    return receipt, code


def request_of(folder: Path, flags: ReplayFlags) -> ReplayRequest:
    """Return what the flags ask of a folder."""
    return ReplayRequest(
        folder=folder,
        whole=flags.whole,
        segments=flags.segments,
        items=flags.items,
        minutes=flags.minutes,
        seed=flags.seed,
        anyway=flags.anyway,
        dataset=flags.dataset,
        model=flags.model,
    )


def shown_too(watch: Watch, tell: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Return a function that tells what happens and draws its progress."""

    def both(event: dict[str, Any]) -> None:
        tell(event)
        if event["event"] == "step":
            watch.done("replay", event["step"], event["of"], f"loss {event['loss']:.4f}")
        elif event["event"] == "items" and "done" in event:
            watch.done("answers", event["done"], event["of"])

    return both
