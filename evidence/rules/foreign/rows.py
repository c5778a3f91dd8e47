"""Rows of two files at the same step, or the same epoch: whatever both measured there must be the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from evidence.records.foreign import rules
from evidence.records.foreign.course import goes_on
from evidence.records.foreign.keys import is_timing, split_name
from evidence.records.foreign.numbers import agree
from evidence.records.foreign.view import ForeignRun, MetricRow, Source
from evidence.rules.foreign.finding import found_at
from schemas.problems.problem import Problem
from schemas.problems.rule import first_few
from schemas.problems.words import shown

_PLACES = ("step", "epoch")
_NOT_MEASURED = {*_PLACES, "time", "timestamp", "wall_time", "step_of_epoch", "seconds", "learning_rate", "percentage"}
"""Figures of a row that name a place or a clock. A learning rate may be logged before the step or after it."""

Point = tuple[float, MetricRow]


def different_rows(view: ForeignRun) -> Iterator[Problem]:
    """Yield problems for two files that state different things of the same step or epoch."""
    if any(row.stage > 1 for row in view.metrics):
        return  # Stages count their steps anew; which of them another file means, nobody says.
    for name, files in sorted(_courses(view).items()):
        if len(files) > 1:
            yield from first_few(_of_one_name(view, name, files), limit=3)


def _courses(view: ForeignRun) -> dict[str, dict[str, list[MetricRow]]]:
    """Return the rows of each file by the name of what they measured: `val_accuracy` is `eval_accuracy` here."""
    courses: dict[str, dict[str, list[MetricRow]]] = defaultdict(lambda: defaultdict(list))
    for row in view.metrics:
        for key, value in row.values.items():
            if value is not None and key not in _NOT_MEASURED and not is_timing(key):
                courses[split_name(key)][row.source.file].append(row)
    return courses


def _of_one_name(view: ForeignRun, name: str, files: dict[str, list[MetricRow]]) -> Iterator[Problem]:
    for place in _PLACES:
        first_at: dict[float, list[Point]] = {}
        found = []
        for file, rows in files.items():
            resumed: dict[str, bool] = {}
            for at, here in _points(rows, place, name).items():
                there = first_at.setdefault(at, here)
                other = there[0][1].source.file
                if other == file or any(agree(one, two) for one, _ in there for two, _ in here):
                    continue
                if other not in resumed:  # A resumed run does some steps again.
                    resumed[other] = goes_on(files[other], rows) or goes_on(rows, files[other])
                if not resumed[other]:
                    found.append(_problem(view, name, f"{place} {at:g}", there[0], here[0]))
        if found:
            yield from found
            return


def _problem(view: ForeignRun, name: str, at: str, one: Point, two: Point) -> Problem:
    values = f"{shown(one[0])} in {one[1].source} and {shown(two[0])} in {two[1].source}"
    place = Source(file=two[1].source.file, line=two[1].source.line)
    return found_at(view, place, rules.STATED_TWICE, f"The {name} at {at} is {values}.")


def _points(rows: Sequence[MetricRow], place: str, name: str) -> dict[float, list[Point]]:
    """Return the values of a name by the step, or the epoch, that the rows state; some logs have two of one step."""
    at_place: dict[float, list[Point]] = defaultdict(list)
    places = [row.values.get(place) for row in rows if place not in row.inferred]
    if place == "epoch":
        if any("step" in row.values for row in rows) or None in places or any(at != int(at or 0) for at in places):
            return {}  # Parts of an epoch are rounded, and several rows may stand in one.
        if len(set(places)) < len(places) or len(places) < len(rows):
            return {}
    begins = 0.0 if place == "step" else min((at or 0.0 for at in places), default=0.0)
    for row in rows:
        at = row.values.get(place)
        value = next((value for key, value in row.values.items() if split_name(key) == name), None)
        if at is not None and value is not None and place not in row.inferred:
            at_place[float(at) - (begins if begins in (0.0, 1.0) else 0.0)].append((value, row))
    return at_place
