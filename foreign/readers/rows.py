"""Rows of measurements by our names, how long a run took at least and at most, and the course of its losses.

The course has the rows of each log, and those of a log that another one goes on from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from foreign.readers.keys import metric_of
from foreign.readers.statement import Citation, Statement, infer
from foreign.readers.text import finite, number_of
from foreign.readers.view import ForeignRun, MetricRow

_LARGEST = 4_102_444_800
"""Seconds since 1970 beyond which a number is not a time of a run: the year 2100."""

ELAPSED = "elapsed_seconds"
"""Our name of the time that a row states since the training began."""

_OTHER_COUNTS = {"_step", "iter", "iteration"}
"""Keys that count the steps of a training where no other key does."""

_DURATION = re.compile(r"(?:(\d{1,5}) days?, )?(\d{1,5}):(\d{2}):(\d{2}(?:\.\d+)?)")


def time_of(value: object) -> datetime | None:
    """Return the time that a value states: ISO 8601, or seconds since 1970; None for anything else.

    Example:
        >>> time_of("2026-01-02T05:04:12Z").hour, time_of(0), time_of("yesterday")
        (5, None, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC) if 0 < value < _LARGEST else None
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        return None


def seconds_of(value: object) -> float | None:
    """Return a duration of the form `1 day, 2:03:04` or `0:10:10` in seconds; None for anything else.

    Example:
        >>> seconds_of("0:10:10"), seconds_of("1 day, 0:00:01"), seconds_of(12)
        (610.0, 86401.0, None)
    """
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds


_FEWEST = 3
"""Rows from which on a course states something about what lies between them."""


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
        yield infer("run.seconds", seconds, finished.source)
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


def _at_most(seconds: float, source: Citation, told: str) -> Statement:
    """Return that a training took no longer than what was around it; clocks start and stop at different moments."""
    most = max(seconds, 0.0) * 1.1 + 60.0
    return infer("result.train_seconds", seconds, source, told, low=0.0, high=most)


Rows = list[MetricRow]


def loss_series(metrics: Sequence[MetricRow], name: str = "loss") -> dict[tuple[str, int], Rows]:
    """Return the rows with a loss of this name, of training or `eval_loss`, of each stage of each file.

    A training loss that is not finite is one: a course may end in it. A null beside the loss of an evaluation is not
    one.
    """
    series: dict[tuple[str, int], Rows] = defaultdict(list)
    for row in metrics:
        if row.values.get(name) is not None or (name == "loss" and _is_not_finite(row)):
            series[row.source.file, row.stage].append(row)
    return series


def course_of(metrics: Sequence[MetricRow]) -> Rows:
    """Return the longest series with everything that comes before and after it: of a resumed run, all its logs."""
    parts = [rows for rows in loss_series(metrics).values() if rows]
    course = max(parts, key=len, default=[])
    while later := next((rows for rows in parts if goes_on(course, rows)), None):
        course = _join(course, later)
    while earlier := next((rows for rows in parts if goes_on(rows, course)), None):
        course = _join(earlier, course)
    return course


def goes_on(one: Sequence[MetricRow], other: Sequence[MetricRow]) -> bool:
    """Return whether a series goes on from another one: it begins in its second half or later, and ends after it.

    One that begins with its first rows, as every training does, is another training.
    """
    first, second = _steps(one), _steps(other)
    if not first or not second:
        return False
    distance = min((two - one for one, two in pairwise(second)), default=0.0)
    begins_anew = second[0] <= distance
    return not begins_anew and second[0] > (first[0] + first[-1]) / 2 and second[-1] > first[-1]


def _join(one: Rows, other: Rows) -> Rows:
    """Return two series as one; from where the second begins, the first one's steps were done again."""
    begins = _steps(other)[0]
    return [*(row for row in one if (row.values.get("step") or 0) < begins), *other]


def _steps(rows: Sequence[MetricRow]) -> list[float]:
    """Return the steps of rows, in order; none where a row states none."""
    steps = [step for row in rows if (step := row.values.get("step")) is not None]
    return sorted(steps) if len(steps) == len(rows) else []


def _is_not_finite(row: MetricRow) -> bool:
    others = (value for name, value in row.values.items() if name != "loss" and "loss" in name)
    return "loss" in row.values and row.values["loss"] is None and all(value is None for value in others)


def is_trainer_summary(value: dict[str, Any]) -> bool:
    """Return whether a dict is what the Hugging Face Trainer writes at the end of training."""
    return "train_runtime" in value or "train_samples_per_second" in value or "train_steps_per_second" in value


def row_values(item: dict[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a row by our names; text that is a number counts, true and false do not."""
    values: dict[str, float | None] = {}
    # Beside the steps of the training, W&B counts calls of its logger as `_step`, and LitGPT microbatches as `iter`.
    of_steps = any(key not in _OTHER_COUNTS and metric_of(key) == "step" for key in item)
    for key, value in item.items():
        if key in _OTHER_COUNTS and of_steps:
            continue
        if key == "elapsed_time" and (seconds := seconds_of(value)) is not None:
            values[ELAPSED] = seconds
            continue
        number = number_of(value) if isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            values.setdefault(metric_of(key), finite(number))
        elif value is None and "loss" in metric_of(key):
            values.setdefault(metric_of(key), None)
    return values


def is_metric_row(values: dict[str, float | None]) -> bool:
    """Return whether numbers are a row of training metrics: a place in the run and something measured there."""
    place = {"step", "epoch"} & values.keys()
    return bool(place) and len(values.keys() - {"step", "epoch", "time", "timestamp", "wall_time"}) > 0
