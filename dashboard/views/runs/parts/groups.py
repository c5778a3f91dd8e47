"""Runs in groups: one line for each value that runs agree in, and a choice that narrows the list to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session.reading import reader_zone
from dashboard.shared.tables.query import condition_text
from dashboard.shared.tables.run_rows import Row
from dashboard.shared.tables.runs_table import column_of, shown_text
from dashboard.views.runs.logic.groups import RunGroup, Statistics, in_groups
from schemas.problems import formats
from schemas.problems.words import quantity

_ONLY = "only_group"
MOST_LINES = 20
"""Groups in the table; the choice beside it has all of them."""

_HEAD = ("Runs", "Consistent", "Counted", "Best score", "Mean score", "Lowest last loss", "Mean last loss", "Newest")


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
