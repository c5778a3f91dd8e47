"""Runs in groups: one line for each value that runs agree in, and a choice that narrows the list to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session.reading import reader_zone
from dashboard.shared.tables.query import condition_text
from dashboard.shared.tables.run_rows import Row
from dashboard.shared.tables.runs_table import column_of, shown_text
from dashboard.shared.words import numbers
from dashboard.views.runs.logic.order import Group, in_groups
from schemas.problems.words import counted

_ONLY = "only_group"
MOST_LINES = 20
"""Groups in the table; the choice beside it has all of them."""

_HEAD = ("Runs", "Verified", "Best score", "Mean score", "Lowest last loss", "Mean last loss", "Newest")


def show(rows: Sequence[Row], key: str) -> list[Row]:
    """Draw the groups that a column makes, and return the rows with those of a group together, the largest first."""
    groups = in_groups(rows, key)
    zone = reader_zone()
    # A table of HTML: a second grid on the page would take the keyboard from the first.
    markup.table(
        [column_of(key).title, *_HEAD],
        [_line(group, zone) for group in groups[:MOST_LINES]],
        numbers=range(1, len(_HEAD)),
    )
    more = f"; the largest {MOST_LINES} are shown" if len(groups) > MOST_LINES else ""
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
            help="Adds a condition to the search, where it can be taken out again.",
        )
        said = f"{counted(len(groups), 'group')} by {column_of(key).title}{more}. Each run counts once in a mean."
        markup.note(f"{said} Below, the runs of a group stand together.")
    return list(dict.fromkeys(row for group in groups for row in group.rows))


def _line(group: Group, zone: tzinfo) -> list[str]:
    newest = numbers.NOTHING if group.newest is None else f"{group.newest.astimezone(zone):%Y-%m-%d %H:%M}"
    return [
        _name(group),
        numbers.count(len(group.rows)),
        numbers.count(group.verified),
        numbers.percent(group.best_score),
        numbers.percent(group.mean_score),
        numbers.digits(group.lowest_loss),
        numbers.digits(group.mean_loss),
        newest,
    ]


def _name(group: Group) -> str:
    return numbers.NOTHING if group.value is None else shown_text(group.value)


def _narrow(key: str, values: Sequence[str | None]) -> None:
    place = st.session_state.get(_ONLY)
    if place is None:
        return
    asked = condition_text(key, values[place])
    before = st.session_state.get("q") or ""
    st.session_state["q"] = before if asked in before else f"{before} {asked}".strip()
    st.session_state[_ONLY] = None
