"""The table of runs as the browser's grid: sorted by a click on a title, rows chosen by their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import streamlit as st

from dashboard import state
from dashboard.logic import runs_table
from dashboard.logic.grades import GRADES, STATUSES, Tone, worded
from dashboard.logic.numbers import NOTHING
from dashboard.reading import reader_zone

KEY = "runs_table"
_CLICK = "runs_table_open"
_ROW_PIXELS = 36
_MOST_ROWS = 16
_COLOURS: Mapping[Tone, Literal["green", "blue", "orange", "red", "gray"]] = {
    "good": "green",
    "fair": "blue",
    "poor": "orange",
    "bad": "red",
    "quiet": "gray",
}


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Draw the rows and return the names of the chosen runs; a click on a name opens that run."""
    chosen = st.dataframe(
        runs_table.frame(rows, columns),
        column_config={key: _config(runs_table.column(key)) for key in columns},
        hide_index=True,
        row_height=_ROW_PIXELS,
        height=_ROW_PIXELS * (min(len(rows), _MOST_ROWS) + 1) + 3,
        placeholder=NOTHING,
        on_select="rerun",
        selection_mode="multi-row",
        key=KEY,
        alt="Runs, one in a row",
    )
    click = st.session_state.get(_CLICK)
    if click is not None:
        state.go(state.RUN, run=str(rows[click["row"]]["run"]))
    return [str(rows[index]["run"]) for index in chosen["selection"]["rows"] if index < len(rows)]


def _config(column: runs_table.Column) -> Any:
    """Return how the grid shows a column."""
    shared: Any = {"label": column.title, "help": column.meaning, "width": column.width}
    make = st.column_config
    if column.key == "run":
        return make.ButtonColumn(**shared, pinned=True, alignment="left", type="tertiary", key=_CLICK)
    match column.kind:
        case "count":
            return make.NumberColumn(**shared, format="localized")
        case "loss":
            return make.NumberColumn(**shared, format="%.4f")
        case "share":
            return make.NumberColumn(**shared, format="%.1f %%")
        case "minutes":
            return make.NumberColumn(**shared, format="%.1f min")
        case "time":
            return make.DatetimeColumn(**shared, format="YYYY-MM-DD HH:mm", timezone=str(reader_zone()))
        case "line":
            return make.LineChartColumn(**shared)
        case "sign":
            signs = GRADES if column.key == "grade" else STATUSES
            return make.MultiselectColumn(
                **shared,
                options=[worded(signs, word) for word in signs],
                color=[_COLOURS[sign.tone] for sign in signs.values()],
            )
    return make.TextColumn(**shared, alignment="right" if column.key == "interval" else None)
