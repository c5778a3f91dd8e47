"""Which smoke run rehearsed which full run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime

from evidence.index.runs import RunSummary
from schemas.reading.times import moment

MEANING = "The newest full run that succeeded, and the newest smoke run of its model and method that started before it."
"""What `smoke_and_full` finds, for the reader; in place of one that succeeded, any other if there is no such pair."""


def smoke_and_full(found: Sequence[RunSummary]) -> tuple[str, str] | None:
    """Return the names of a smoke run and the full run it rehearsed, None without such a pair.

    The full run is the newest that succeeded and was rehearsed, else the newest that was. Model and
    method must agree: the smoke run of another model rehearsed nothing. A run without a start is in no pair.
    """
    rehearsals: dict[tuple[str | None, str | None], list[tuple[datetime, str]]] = {}
    for at, summary in _started(found, "smoke"):
        rehearsals.setdefault((summary.model, summary.method), []).append((at, summary.path.name))
    fulls = _started(found, "full")[::-1]
    for at, full in sorted(fulls, key=lambda run: run[1].status != "succeeded"):
        before = rehearsals.get((full.model, full.method), [])
        place = bisect_left(before, (at, ""))
        if place:
            return before[place - 1][1], full.path.name
    return None


def _started(found: Sequence[RunSummary], mode: str) -> list[tuple[datetime, RunSummary]]:
    """Return the runs of a mode with the moment of their start, in its order whatever zone they state it in."""
    stated = [(moment(run.started_at or ""), run) for run in found if run.mode == mode]
    return sorted(((at, run) for at, run in stated if at is not None), key=lambda run: run[0])
