"""Rows of two files at the same step, or the same epoch: whatever both measured there must be the same."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from evidence.records.foreign import rules
from evidence.records.foreign.course import goes_on
from evidence.records.foreign.keys import is_timing, split_name
from evidence.records.foreign.numbers import agree
from evidence.records.foreign.statement import Source
from evidence.records.foreign.view import ForeignRun, MetricRow
from evidence.rules.foreign.finding import found_at
from schemas.problems.problem import Problem
from schemas.problems.rule import first_few
from schemas.problems.words import shown

_PLACES = ("step", "epoch")
_HELD = re.compile(r"loss|acc|reward|perplexity|exact_match|bleu|rouge|(?:^|_)(?:f1|em|auc|score)(?:_|$)")
"""Names of what both measured alike. A learning rate may be logged before the step or after it, a norm before clipping
or after it."""

_NUMBER = re.compile(r"\d+")
_RANK = re.compile(r"rank|worker|process|proc|node|host|gpu|device", re.IGNORECASE)

_NUMBERED = re.compile(
    r"(?P<stem>.+?)[-_.]?(?:seed|run|trial|fold|exp|try)?[-_]?(?:\d{1,5}|(?<=[-_])[a-z])(?P<end>\.\w+)", re.IGNORECASE
)
"""Names of files that end in a number, or in a letter apart."""

_BY_CHANCE = 0.1
"""Rows in which two runs agree, as a share of those in which they do not."""

_FEWEST = 3
"""Rows from which on epochs tell them apart."""

_OUT_OF_THE_WAY = 0.5e-3
"""Part of an epoch that no trainer states, so that parts of epochs are held only against parts."""

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
            if value is not None and _HELD.search(key) and not is_timing(key):
                courses[split_name(key)][row.source.file].append(row)
    return courses


def _of_one_name(view: ForeignRun, name: str, files: dict[str, list[MetricRow]]) -> Iterator[Problem]:
    for place in _PLACES:
        first_at: dict[float, list[Point]] = {}
        found: list[tuple[str, str, Problem]] = []
        agreeing: Counter[tuple[str, str]] = Counter()
        for file, rows in files.items():
            resumed: dict[str, bool] = {}
            for at, here in _points(rows, place, name).items():
                there = first_at.setdefault(at, here)
                other = there[0][1].source.file
                if other == file or _are_of_ranks(file, other):
                    continue
                if any(agree(one, two) for one, _ in there for two, _ in here):
                    agreeing[other, file] += 1
                    continue
                if other not in resumed:  # A resumed run does some steps again.
                    resumed[other] = goes_on(files[other], rows) or goes_on(rows, files[other])
                if not resumed[other]:
                    at_place = f"{place} {here[0][1].values[place]:g}"
                    found.append((other, file, _problem(view, name, at_place, there[0], here[0])))
        differing = Counter((one, two) for one, two, _ in found)
        told = [
            problem
            for one, two, problem in found
            if agreeing[one, two] > _BY_CHANCE * differing[one, two] or not _are_numbered(one, two)
        ]
        if told:
            yield from told
            return


def _are_numbered(one: str, other: str) -> bool:
    """Return whether two files are of two runs, by a letter or a number at the end of their names: run_a, run_b.

    Only where hardly a row of the one is a row of the other: files of one run have most in common.
    """
    stems = [_NUMBERED.fullmatch(name) for name in (one, other)]
    return one != other and all(stems) and len({stem.group("stem", "end") for stem in stems if stem}) == 1


def _are_of_ranks(one: str, other: str) -> bool:
    """Return whether two files differ only in a number: each process of a run then wrote its own."""
    return _NUMBER.sub("0", one) == _NUMBER.sub("0", other) and _RANK.search(one) is not None


def _problem(view: ForeignRun, name: str, at: str, one: Point, two: Point) -> Problem:
    values = f"{shown(one[0])} in {one[1].source} and {shown(two[0])} in {two[1].source}"
    place = Source(file=two[1].source.file, line=two[1].source.line)
    return found_at(view, place, rules.STATED_TWICE, f"The {name} at {at} is {values}.")


def _points(rows: Sequence[MetricRow], place: str, name: str) -> dict[float, list[Point]]:
    """Return the values of a name by the step, or the epoch, that the rows state; some logs have two of one step."""
    at_place: dict[float, list[Point]] = defaultdict(list)
    shift = _shift(rows) if place == "epoch" else 0.0
    for row in rows if shift is not None else ():
        at = row.values.get(place)
        value = next((value for key, value in row.values.items() if split_name(key) == name), None)
        if at is not None and value is not None and place not in row.inferred:
            at_place[float(at) - (shift or 0.0)].append((value, row))
    return at_place


def _shift(rows: Sequence[MetricRow]) -> float | None:
    """Return what is taken off each epoch, so that whole ones count from 0; None where rows cannot be told by epochs.

    Parts of an epoch are those of one trainer and are moved out of the way of whole ones, which somebody may count
    from 1.
    """
    places = [row.values.get("epoch") for row in rows]
    epochs = [at for at in places if at is not None]
    if len(epochs) < len(places) or len(set(epochs)) < len(epochs) or len(epochs) < _FEWEST:
        return None
    if any(at != int(at) for at in epochs):
        return _OUT_OF_THE_WAY
    return 1.0 if min(epochs) == 1 else 0.0
