"""The course of a run's training loss: the rows of each log, and those of a log that another one goes on from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from evidence.records.foreign.view import MetricRow

Rows = list[MetricRow]


def loss_series(metrics: Sequence[MetricRow], name: str = "loss") -> dict[tuple[str, int], Rows]:
    """Return the rows with a loss of this name, of training or `eval_loss`, of each stage of each file.

    A training loss that is not finite is one: a course may end in it. A null beside the loss of an evaluation is none.
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
        course = _joined(course, later)
    while earlier := next((rows for rows in parts if goes_on(rows, course)), None):
        course = _joined(earlier, course)
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


def _joined(one: Rows, other: Rows) -> Rows:
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
