"""How long a run took at least and at most, as its sources state start, end, and times in between."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from evidence.records.foreign.clock import time_of
from evidence.records.foreign.metric_rows import ELAPSED
from evidence.records.foreign.statement import Source, Statement
from evidence.records.foreign.view import ForeignRun

_FEWEST = 3
"""Rows from which on a course says something about what lies between them."""


def times(view: ForeignRun) -> Iterator[Statement]:
    """Yield between what the time of a training lies."""
    yield from _times(view)
    yield from _clock(view)


def _times(view: ForeignRun) -> Iterator[Statement]:
    """Yield how long a run took at most: from its start to its end, as one file states both."""
    for file, reading in view.files.items():
        named = {fact.name: fact for fact in reading.facts}
        wall = named.get("run.wall_seconds")
        if (
            wall is not None
            and isinstance(wall.value, int | float)
            and (wall.source.pointer or "").endswith("_runtime")
        ):
            yield _at_most(float(wall.value), wall.source, f"W&B watched it for {wall.value:g} seconds ({wall.source})")
        started, finished = named.get("run.started_at"), named.get("run.finished_at")
        if started is None or finished is None:
            continue
        one, two = time_of(started.value), time_of(finished.value)
        if one is None or two is None or (one.tzinfo is None) != (two.tzinfo is None):
            continue
        seconds = (two - one).total_seconds()
        yield Statement(fact="run.seconds", value=seconds, source=finished.source, kind="measured", how="inferred")
        began = f"it began at {started.value} ({started.source}) and ended at {finished.value}"
        yield Statement(fact="run.seconds", value=0, source=started.source, low=0.0, told=began)
        yield _at_most(seconds, finished.source, f"the run lasted {seconds:g} seconds from start to end ({file})")


def _clock(view: ForeignRun) -> Iterator[Statement]:
    """Yield how long a training took at least, where its rows state the time since it began, as LLaMA-Factory's do."""
    for reading in view.files.values():
        rows = [row for row in reading.metrics if row.values.get(ELAPSED) is not None]
        times = [row.values[ELAPSED] or 0.0 for row in rows]
        if len(rows) < _FEWEST or any(two < one for one, two in pairwise(times)):
            continue  # The clock of a resumed training begins anew.
        yield Statement(
            fact="result.train_seconds",
            value=times[-1],
            source=rows[-1].source,
            kind="measured",
            low=0.9 * times[-1] - 60.0,
            told=f"its rows were written up to {times[-1]:g} seconds after it began ({rows[-1].source})",
        )


def _at_most(seconds: float, source: Source, told: str) -> Statement:
    """Return that a training took no longer than what was around it; clocks start and stop at different moments."""
    most = max(seconds, 0.0) * 1.1 + 60.0
    return Statement(
        fact="result.train_seconds",
        value=seconds,
        source=source,
        kind="measured",
        how="inferred",
        low=0.0,
        high=most,
        told=told,
    )
