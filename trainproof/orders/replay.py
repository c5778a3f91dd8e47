"""Carry out `replay`: the run found, repeated, the receipt sealed and kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.bundle.unpacked import MOST_STATES, pack_states, sent_states, unpacked_run
from evidence.proof.receipts import run_sha256
from evidence.writing import as_json_text, scratch_folder, write_error
from schemas.formats import join_lines
from schemas.problems import ProblemError, problem_of
from schemas.render import render_json
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest, read_recorded
from trainer.replay.replay import replay, write_states
from trainer.replay.report import request_states
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
    states: Path | None = None


def run_replay(
    path: Path, flags: ReplayFlags, *, output: Path | None, quiet: bool, lines: bool
) -> tuple[dict[str, Any], int]:
    """Repeat a run or a bundle's, keep the receipt among this user's own, and return it with the exit code.

    Args:
        path: run folder or bundle.
        flags: of the command line.
        output: where the receipt is written too. None: nowhere.
        quiet: show no progress.
        lines: write events to stderr, one JSON object a line.

    Raises:
        ProblemError: exit code 2, 3 or 4; see `replay`. 1: the bundle does not hold.
    """

    def tell(event: dict[str, Any]) -> None:
        if lines:
            sys.stderr.write(json.dumps(event, ensure_ascii=False) + "\n")
            sys.stderr.flush()

    try:
        with (
            unpacked_run(path, flags.run_id) as folder,
            sent_states(flags.states, run_sha256(folder)) as states,
            Watch(quiet=quiet) as watch,
        ):
            request = request_of(folder, flags, states)
            receipt, code = replay(request, watch.say, shown_too(watch, tell))
        keep(receipt, output)
    except ProblemError as error:
        tell({"event": "refused", "problems": render_json(error.problems)})
        raise
    tell({"event": "done", "result": receipt["result"], "said": receipt["said"], "exit_code": code})
    return receipt, code


def request_of(folder: Path, flags: ReplayFlags, states: Path | None = None) -> ReplayRequest:
    """Return the request of the flags for a folder, with the folder of the states that were sent."""
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
        states=states,
    ).with_seed()


def asked_for(path: Path, flags: ReplayFlags, *, as_json: bool) -> str:
    """Return which states the judge's number names of a run or a bundle's, as text or JSON.

    Raises:
        ProblemError: exit code 2 or 1, as `unpacked_run` and `recorded`.
    """
    with unpacked_run(path, flags.run_id) as folder:
        asking = request_states(read_recorded(folder), request_of(folder, flags))
    return as_json_text(asking.document()) if as_json else join_lines(asking.lines(path.name))


def shown_too(watch: Watch, tell: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Return a function that reports events and draws their progress."""

    def both(event: dict[str, Any]) -> None:
        tell(event)
        if event["event"] == "step":
            watch.done("replay", event["step"], event["of"], f"loss {event['loss']:.4f}")
        elif event["event"] == "items" and "done" in event:
            watch.done("answers", event["done"], event["of"])

    return both


def pack_answer(run: Path, states: str, output: Path) -> int:
    """Pack the states of a run that a judge named, and return their number.

    Args:
        run: the run's folder.
        states: steps, with commas between.
        output: the file.

    Raises:
        ProblemError: exit code 2 or 3; see `write_states`. 2 also: the steps cannot be read, or the file not written.
    """
    steps = {int(each) for each in states.split(",") if each.strip().isdecimal() and len(each.strip()) <= 12}
    if not 0 < len(steps) <= MOST_STATES or len(steps) != len(states.split(",")):
        what = f"--states {states} does not name different steps, {MOST_STATES} at most."
        raise ProblemError([problem_of("TP766", file=str(run), what=what)], exit_code=2)
    try:
        with scratch_folder("trainproof-answer-") as scratch, Watch() as watch:
            sha256 = write_states(run, sorted(steps), scratch, watch.say)
            pack_states(scratch, sha256, output)
    except OSError as error:
        raise write_error(error, output, what="The answer") from error
    return len(steps)
