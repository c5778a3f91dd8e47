"""The table of runs as the browser's grid: a page of them, whose rows are chosen by their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import streamlit as st

from dashboard.shared.parts.run_box import name_pixels
from dashboard.shared.session import state
from dashboard.shared.session.reading import reader_zone
from dashboard.shared.tables import runs_table
from dashboard.shared.tables.run_rows import Row
from dashboard.shared.words.evidence import every_mark
from dashboard.shared.words.grades import GRADES, STATUSES, Tone, label
from dashboard.shared.words.text import plain
from schemas.formats import NOTHING

KEY = "runs_table"
"""Class of the table's container, by which the keyboard finds it."""
_CHOSEN = "runs chosen"
_GRID = "rows and number of the grid"
_CLICK = "runs_table_open"
_ROW_PIXELS = 36
_HEAD_PIXELS = 35
_FEW_ROWS = 10
_COLOURS: Mapping[Tone, Literal["green", "blue", "orange", "red", "gray"]] = {
    "good": "green",
    "fair": "blue",
    "poor": "orange",
    "bad": "red",
    "quiet": "gray",
}
_FORMATS: Mapping[runs_table.Kind, str] = {
    "count": "localized",
    "loss": "%.4f",
    "number": "%.6g",
    "share": "%.1f %%",
    "minutes": "%.1f min",
}


def show_table(rows: Sequence[Row], columns: Sequence[runs_table.Column]) -> None:
    """Draw the rows; a click on a name opens that run, and a tick stays when search, order or page change."""
    names = [row.name for row in rows]
    before = chosen_runs()
    # The style makes a long one as high as the window; a short one has room for the bar that scrolls it sideways.
    is_long = len(rows) > _FEW_ROWS
    with st.container(key=KEY, height=_HEAD_PIXELS + _ROW_PIXELS * len(rows) if is_long else "content", border=False):
        st.dataframe(
            runs_table.table(rows, columns, st.context.theme.type),
            column_config={column.key: _config(column) for column in columns},
            hide_index=True,
            row_height=_ROW_PIXELS,
            height="stretch" if is_long else "content",
            placeholder=NOTHING,
            on_select="rerun",
            selection_mode="multi-row",
            selection_default={"selection": {"rows": [place for place, name in enumerate(names) if name in before]}},
            key=_grid_key(names, before),
            alt="Runs, one in a row",
        )
    click = st.session_state.get(_CLICK)
    if click is not None and click["row"] < len(rows):
        state.go(state.RUN, run=names[click["row"]])
    st.session_state[_CHOSEN] = chosen_runs()


def _grid_key(names: Sequence[str], ticked: Sequence[str]) -> str:
    """Return the key of the grid, which knows its ticks by row number.

    With other rows it must be another grid, or the ticks would move; without ticks it may stay, which draws faster.
    """
    drawn, number = _grid()
    if ticked and drawn != names:
        number += 1
    st.session_state[_GRID] = (list(names), number)
    return f"{KEY} {number}"


def _grid() -> tuple[list[str], int]:
    """Return the names in the rows of the grid that was drawn last, and its number."""
    drawn: tuple[list[str], int] = st.session_state.get(_GRID, ([], 0))
    return drawn


def chosen_runs() -> list[str]:
    """Return the names of the chosen runs: those ticked at this moment, and those on other pages of the table."""
    before: list[str] = st.session_state.get(_CHOSEN, [])
    drawn, number = _grid()
    grid = st.session_state.get(f"{KEY} {number}")
    if grid is None:
        return list(before)
    here = set(drawn)
    ticked = [drawn[place] for place in grid["selection"]["rows"] if place < len(drawn)]
    return [*(name for name in before if name not in here), *ticked]


def box_key(name: str) -> str:
    """Return the key of a box outside the grid by which a run is chosen."""
    return f"box {_grid()[1]} {name}"


def toggle(name: str) -> None:
    """Choose a run, or choose it no more, by a box outside the grid."""
    before = chosen_runs()
    st.session_state[_CHOSEN] = [one for one in before if one != name] if name in before else [*before, name]


def clear() -> None:
    """Choose no run any more."""
    drawn, number = _grid()
    st.session_state[_CHOSEN] = []
    st.session_state[_GRID] = (drawn, number + 1)


def _config(column: runs_table.Column) -> Any:
    """Return how the grid shows a column."""
    shared: Any = {"label": column.title, "help": plain(column.meaning), "width": column.width}
    make = st.column_config
    if column.key == "run":
        shared["width"] = name_pixels()
        return make.ButtonColumn(**shared, pinned=True, alignment="left", type="tertiary", key=_CLICK)
    if column.kind in _FORMATS:
        return make.NumberColumn(**shared, format=_FORMATS[column.kind])
    match column.kind:
        case "time":
            return make.DatetimeColumn(**shared, format="distance", timezone=str(reader_zone()))
        case "picture":
            return make.ImageColumn(**shared)
        case "utc":
            return make.DatetimeColumn(**shared, format="YYYY-MM-DD HH:mm", timezone="UTC")
        case "line":
            return make.LineChartColumn(**shared)
        case "words":
            return make.ListColumn(**shared)
        case "marks":
            marks = every_mark()
            return make.MultiselectColumn(
                **shared, options=list(marks), color=[_COLOURS[tone] for tone in marks.values()]
            )
        case "sign":
            signs = {**STATUSES, **GRADES} if column.key == "grade" else STATUSES
            return make.MultiselectColumn(
                **shared,
                options=[label(signs, word) for word in signs],
                color=[_COLOURS[sign.tone] for sign in signs.values()],
            )
    return make.TextColumn(**shared)
