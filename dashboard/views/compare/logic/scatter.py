"""A scatter: which runs have a point, in which group, and what the runs at one value reached, as mean and spread.

pandas is loaded with this module; the page has it loaded for its pictures in any case.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dashboard.views.compare.logic.relation import Scale
from schemas.formats import NOTHING

_MOST_VALUES = 30
"""Different values across, beyond which hardly two runs share one and means would hide the points."""
_JITTER, _APART, _ON_WORDS = 0.008, 0.024, 8.0
"""Shares of the axis: how far points of one value are moved at most, groups from each other; words have more room."""


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """What is drawn of which runs.

    Attributes:
        members: For each group in the order of its values, its word and the numbers of its runs; one group without a
            word where nothing distinguishes the runs.
        x: What lies across.
        y: What lies upward.
        groups: What distinguishes the runs.
        logarithmic: The scales that are drawn logarithmic.
        beyond: Numbers of the runs that state both and have no place on a logarithmic axis.
        doubtful: Numbers of the runs that contradict themselves: drawn hollow, and in no mean.
    """

    members: tuple[tuple[str, tuple[int, ...]], ...]
    x: Scale
    y: Scale
    groups: Scale | None
    logarithmic: frozenset[str]
    beyond: tuple[int, ...]
    doubtful: frozenset[int]

    def title_of(self, word: str) -> str:
        """Return what a group is called where groups are distinguished; empty where they are not."""
        return "" if self.groups is None else f"{self.groups.name}: {word}"

    def sound(self, members: Sequence[int]) -> list[int]:
        """Return the runs among these that do not contradict themselves."""
        return [index for index in members if index not in self.doubtful]


@dataclass(frozen=True, kw_only=True)
class Mean:
    """What the sound runs of a group reached at one value.

    Attributes:
        group: Number of the group.
        x: The value.
        n: How many runs there are, two or more.
        mean: Their mean.
        spread: Their standard deviation, with n - 1 in the denominator.
    """

    group: int
    x: float
    n: int
    mean: float
    spread: float


def scatter(
    x: Scale,
    y: Scale,
    groups: Scale | None,
    *,
    logarithmic: frozenset[str] = frozenset(),
    doubtful: Collection[int] = (),
) -> Scatter:
    """Return what a scatter shows: the runs that have a place on both axes.

    Scales named in `logarithmic` are drawn so if they are of numbers; zero has no place on one. `doubtful` are runs.
    """
    logs = frozenset(scale.name for scale in (x, y) if scale.name in logarithmic and not scale.words)
    members: dict[float | None, list[int]] = {}
    beyond = []
    for index, places in enumerate(zip(x.places, y.places, strict=True)):
        if None in places:
            continue
        if all(_has_place(scale, index, is_log=scale.name in logs) for scale in (x, y)):
            members.setdefault(None if groups is None else groups.places[index], []).append(index)
        else:
            beyond.append(index)
    # By value; those that state none come last.
    ordered = sorted(members, key=lambda place: math.inf if place is None else place)
    worded = tuple(("" if groups is None else _word(groups, place), tuple(members[place])) for place in ordered)
    return Scatter(
        members=worded, x=x, y=y, groups=groups, logarithmic=logs, beyond=tuple(beyond), doubtful=frozenset(doubtful)
    )


def means(shown: Scatter) -> list[Mean]:
    """Return mean and spread of each group at each value that two sound runs of it share; none of words.

    Example:
        Three seeds at rate 0.001 with scores 0.5, 0.6 and 0.7 and one at 0.002: n 3, mean 0.6, spread 0.1 at 0.001.
    """
    if shown.y.words:
        return []
    frame: Any = pd.DataFrame(
        [
            (group, shown.x.places[index], shown.y.places[index])
            for group, (_, members) in enumerate(shown.members)
            for index in shown.sound(members)
        ],
        columns=["group", "x", "y"],
    )
    if frame["x"].nunique() > _MOST_VALUES:
        return []
    found = frame.groupby(["group", "x"])["y"].agg(["count", "mean", "std"])
    return [
        Mean(group=int(group), x=float(x), n=int(n), mean=float(mean), spread=float(spread))
        for (group, x), n, mean, spread in found[found["count"] > 1].itertuples()
    ]


def spread_points(shown: Scatter) -> Mapping[int, float]:
    """Return where each run's point lies across: beside others of its value, so that none hides another.

    A value that one run alone has stays where it is; groups stand beside each other in any case.
    """
    places = {index: float(shown.x.places[index] or 0.0) for _, members in shown.members for index in members}
    shared, turn = Counter(places.values()), Counter[float]()
    found = {}
    for group, (_, members) in enumerate(shown.members):
        for index in members:
            at = places[index]
            turn[at] += 1
            # Multiples of the golden ratio are spread evenly, however many there are, and the same at each visit.
            share = 2 * (turn[at] * 0.618034 % 1.0) - 1 if shared[at] > 1 else 0.0
            found[index] = beside(shown, at, group, share)
    return found


def beside(shown: Scatter, at: float, group: int, share: float = 0.0) -> float:
    """Return a value moved to the place of a group, and by a share of the jitter from -1 to 1."""
    values = [float(place) for place in shown.x.places if place is not None]
    apart = (group - (len(shown.members) - 1) / 2) * min(_APART, 0.3 / len(shown.members))
    by = share * _JITTER + apart
    if shown.x.words:
        return at + _ON_WORDS * by
    if shown.x.name in shown.logarithmic:
        drawn = [value for value in values if value > 0]
        return at * math.pow(max(drawn) / min(drawn), by)
    return at + by * (max(values) - min(values))


def _has_place(scale: Scale, index: int, *, is_log: bool) -> bool:
    place = scale.places[index]
    return place is not None and (place > 0 or not is_log)


def _word(groups: Scale, place: float | None) -> str:
    if place is None:
        return NOTHING
    return groups.words[int(place)] if groups.words else repr(place).removesuffix(".0")
