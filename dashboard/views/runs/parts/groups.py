"""Runs in groups: one line for each value that runs agree in, and a choice that narrows the list to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session.reading import reader_zone
from dashboard.shared.tables.query import condition_text
from dashboard.shared.tables.run_rows import Row
from dashboard.shared.tables.runs_table import column_of, shown_text
from schemas import formats
from schemas.formats import quantity

_ONLY = "only_group"
MOST_LINES = 20
"""Groups in the table; the choice beside it has all of them."""

_HEAD = ("Runs", "Consistent", "Counted", "Best score", "Mean score", "Lowest last loss", "Mean last loss", "Newest")


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


def show(rows: Sequence[Row], key: str) -> list[Row]:
    """Draw the groups that a column makes, and return the rows with those of a group together."""
    groups = in_groups(rows, key)
    zone = reader_zone()
    # A table of HTML: a second grid on the page would take the keyboard from the first.
    markup.table(
        [column_of(key).title, *_HEAD],
        [_line(group, zone) for group in groups[:MOST_LINES]],
        numbers=range(1, len(_HEAD)),
    )
    more = f"; the first {MOST_LINES} are shown" if len(groups) > MOST_LINES else ""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Show one group only",
            range(len(groups)),
            index=None,
            format_func=lambda place: _name(groups[place]),
            key=_ONLY,
            placeholder="all groups",
            width=280,
            on_change=_narrow,
            args=(key, [group.value for group in groups]),
            help="Adds a condition to the search; remove it there.",
        )
        markup.note(
            f"{quantity(len(groups), 'group')} by {column_of(key).title}{more}. Mean ± standard deviation over the "
            "full runs of a group, over its smoke runs where it has no full run; contradictory runs are left out. "
            "The list below is in the same order."
        )
    return list(dict.fromkeys(row for group in groups for row in group.rows))


def _line(group: RunGroup, zone: tzinfo) -> list[str]:
    newest = formats.NOTHING if group.newest is None else f"{group.newest.astimezone(zone):%Y-%m-%d %H:%M}"
    return [
        _name(group),
        formats.count(len(group.rows)),
        formats.count(group.consistent),
        f"{formats.count(group.counted)} {group.over or 'of any mode'}",
        formats.percent(group.score.best),
        _mean(group.score, formats.percent),
        formats.number(group.loss.best),
        _mean(group.loss, formats.number),
        newest,
    ]


def _mean(found: Statistics, write: Callable[[float | None], str]) -> str:
    """Return a mean with its spread where there is one: `85.0 % ± 2.1 %`."""
    return write(found.mean) + (f" ± {write(found.spread)}" if found.spread is not None else "")


def _name(group: RunGroup) -> str:
    return formats.NOTHING if group.value is None else shown_text(group.value)


def _narrow(key: str, values: Sequence[str | None]) -> None:
    place = st.session_state.get(_ONLY)
    if place is None:
        return
    asked = condition_text(key, values[place])
    before = st.session_state.get("q") or ""
    st.session_state["q"] = before if asked in before else f"{before} {asked}".strip()
    st.session_state[_ONLY] = None
