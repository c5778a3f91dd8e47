"""Runs in groups: what runs that agree in one value reached, as mean and spread.

pandas is loaded with this module, so the page imports it when a group is requested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from dashboard.shared.tables.run_rows import Row


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """One figure over the runs of a group that state it, each run counting once.

    Attributes:
        n: How many do.
        best: The best of them: the highest score, the lowest loss. None: none states it; so for the mean.
        mean: Their mean.
        spread: Their standard deviation, with n - 1 in the denominator. None: fewer than two state it.
    """

    n: int
    best: float | None
    mean: float | None
    spread: float | None


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs that agree in one value.

    Attributes:
        value: What they agree in; None: they do not state it.
        rows: The runs.
        consistent: How many of them are graded consistent or verified.
        counted: Runs that the statistics are over: the full ones, all where there is no full one; none that
            contradicts itself.
        over: The mode of these runs; None where they differ or do not state it.
        score: Exact match, 0 to 1.
        loss: Last loss.
        newest: When the latest of all runs of the group started.
    """

    value: str | None
    rows: tuple[Row, ...]
    consistent: int
    counted: int
    over: str | None
    score: Statistics
    loss: Statistics
    newest: datetime | None


def in_groups(rows: Sequence[Row], key: str) -> list[RunGroup]:
    """Return the groups that a column makes; the rows of a group stay in order.

    Groups of numbers come in the order of the numbers, others the largest first; runs that do not state it come last.
    A run with several tags belongs to the group of each.
    """
    members: dict[str | None, list[Row]] = {}
    for row in rows:
        for value in group_values(row.get(key)):
            members.setdefault(value, []).append(row)
    groups = _groups(members)
    stated = [each for row in rows if (each := row.get(key)) not in (None, "")]
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in stated):
        return sorted(groups, key=lambda group: (group.value is None, float(group.value or 0)))
    return sorted(groups, key=lambda group: (group.value is None, -len(group.rows), group.value or ""))


def group_values(value: object) -> Sequence[str | None]:
    """Return the groups that a value belongs to."""
    if isinstance(value, tuple):
        return [str(one) for one in value] or [None]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [None] if value in (None, "") else [str(value)]


def _groups(members: Mapping[str | None, Sequence[Row]]) -> list[RunGroup]:
    frame: Any = pd.DataFrame(
        [
            (place, row.summary.mode, row.summary.grade, row.summary.score, row.summary.last_loss)
            for place, rows in enumerate(members.values())
            for row in rows
            if row.summary.grade != "contradictory"
        ],
        columns=["group", "mode", "grade", "score", "loss"],
    ).astype({"score": float, "loss": float})
    # What a run that contradicts itself states is no measurement.
    # A smoke run proves the pipeline: its score means nothing about the full runs of its group.
    sound = frame["grade"] != "contradictory"
    frame = frame[sound | ~sound.groupby(frame["group"]).transform("any")]
    frame.loc[frame["grade"] == "contradictory", ["score", "loss"]] = math.nan
    full = frame["mode"] == "full"
    used = frame[full | ~full.groupby(frame["group"]).transform("any").astype(bool)].groupby("group")
    every = range(len(members))
    sizes = used.size().reindex(every, fill_value=0)
    scores = used["score"].agg(["count", "max", "mean", "std"]).reindex(every)
    losses = used["loss"].agg(["count", "min", "mean", "std"]).reindex(every)
    modes = {place: found.iloc[0] for place, found in used["mode"] if found.nunique(dropna=False) == 1}
    return [
        RunGroup(
            value=value,
            rows=tuple(rows),
            consistent=sum(row.summary.grade in {"verified", "consistent"} for row in rows),
            counted=int(sizes[place]),
            over=modes.get(place),
            score=_statistics(scores.loc[place].tolist()),
            loss=_statistics(losses.loc[place].tolist()),
            newest=max((at for row in rows if isinstance(at := row.get("started"), datetime)), default=None),
        )
        for place, (value, rows) in enumerate(members.items())
    ]


def _statistics(found: Sequence[float]) -> Statistics:
    """Return how many, the best, the mean and the spread, in this order; NaN if it is missing."""
    best, mean, spread = (None if math.isnan(value) else value for value in found[1:])
    return Statistics(n=0 if math.isnan(found[0]) else int(found[0]), best=best, mean=mean, spread=spread)
