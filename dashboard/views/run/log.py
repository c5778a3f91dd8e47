"""The log tab of the run page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session import reading
from dashboard.shared.words.text import glimpse
from dashboard.shared.words.times import date_and_time
from schemas.formats import count, quantity
from schemas.reading import get_str

_LEVELS = ("debug", "info", "warning", "error")
_OTHER = "other"
_LONGEST_MESSAGE = 2000
_ROW_PIXELS, _MOST_PIXELS = 35, 640


def section(folder: Path, *, following: bool) -> None:
    """Draw the records of a run's log; newest first while the run is running."""
    levels = st.pills(
        "Levels",
        [*_LEVELS, _OTHER],
        default=["info", "warning", "error", _OTHER],
        selection_mode="multi",
        key="levels",
        bind="query-params",
        help="Other: a missing or unknown level.",
    )
    log = reading.log_of(folder)
    if not log.records:
        markup.empty("No log", "log.jsonl is missing or cannot be read.")
        return
    zone = reading.reader_zone()
    rows = [
        (
            date_and_time(get_str(record, "time"), zone),
            get_str(record, "level") or "?",
            glimpse(get_str(record, "message") or "", _LONGEST_MESSAGE),
        )
        for record in log.records
    ]
    table = pd.DataFrame(rows, columns=["Time", "Level", "Message"])
    table = table[table["Level"].where(table["Level"].isin(_LEVELS), _OTHER).isin(levels)]
    notes = [f"{count(len(table))} of {quantity(len(rows), 'record')}{', newest first' if following else ''}."]
    if log.is_cut:
        notes.append("The log is long: only its end was read. Download it in the tab Files.")
    if log.unread:
        notes.append(f"{quantity(log.unread, 'line')} could not be read.")
    markup.note(" ".join(notes))
    st.dataframe(
        table[::-1] if following else table,
        height=min(_MOST_PIXELS, _ROW_PIXELS * (len(table) + 1) + 3),
        hide_index=True,
        column_config={"Time": st.column_config.Column(width=150), "Level": st.column_config.Column(width=70)},
        key="log",
    )
