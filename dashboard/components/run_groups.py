"""Runs in groups: one line for each value that runs agree in, and a click that narrows the list to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.components import markup
from dashboard.components.runs_toolbar import title
from dashboard.logic.numbers import NOTHING
from dashboard.logic.query import condition_text
from dashboard.logic.run_order import Group, in_groups
from dashboard.logic.run_rows import Row
from dashboard.logic.runs_table import shown_text
from dashboard.reading import reader_zone

_CLICK = "run_groups_open"
_ROW_PIXELS = 36
_MOST_ROWS = 10
MOST_GROUPS = 500


def show(rows: Sequence[Row], key: str) -> list[Row]:
    """Draw the groups that a column makes, and return the rows with those of a group together, the largest first."""
    groups = in_groups(rows, key)
    shown = groups[:MOST_GROUPS]
    st.dataframe(
        _frame(shown),
        column_config=_config(key, shown),
        hide_index=True,
        row_height=_ROW_PIXELS,
        height="content" if len(shown) <= _MOST_ROWS else _ROW_PIXELS * (_MOST_ROWS + 1),
        placeholder=NOTHING,
        key="run_groups",
        alt=f"Groups of runs by {title(key)}",
    )
    more = f" The first {MOST_GROUPS} are shown." if len(groups) > MOST_GROUPS else ""
    said = f"{markup.counted(len(groups), 'group')} by {title(key)}; a click on one adds it to the search."
    markup.note(f"{said} Below, the runs of a group stand together.{more}")
    return list(dict.fromkeys(row for group in groups for row in group.rows))


def _frame(groups: Sequence[Group]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "value": [NOTHING if group.value is None else shown_text(group.value) for group in groups],
            "runs": [len(group.rows) for group in groups],
            "verified": [group.verified for group in groups],
            "best_score": [_percent(group.best_score) for group in groups],
            "mean_score": [_percent(group.mean_score) for group in groups],
            "lowest_loss": [group.lowest_loss for group in groups],
            "mean_loss": [group.mean_loss for group in groups],
            "newest": pd.to_datetime(pd.Series([group.newest for group in groups], dtype=object), utc=True),
        }
    ).astype(dict.fromkeys(("best_score", "mean_score", "lowest_loss", "mean_loss"), "float64"))


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _config(key: str, groups: Sequence[Group]) -> dict[str, Any]:
    make = st.column_config
    return {
        "value": make.ButtonColumn(
            title(key),
            width=270,
            pinned=True,
            alignment="left",
            type="tertiary",
            key=_CLICK,
            on_click=_narrow,
            args=(key, [group.value for group in groups]),
        ),
        "runs": make.NumberColumn("Runs", format="localized", width=70),
        "verified": make.NumberColumn("Verified", format="localized", width=84),
        "best_score": make.NumberColumn("Best score", format="%.1f %%", width=100),
        "mean_score": make.NumberColumn("Mean score", format="%.1f %%", width=100, help="Each run counts once."),
        "lowest_loss": make.NumberColumn("Lowest last loss", format="%.4f", width=120),
        "mean_loss": make.NumberColumn("Mean last loss", format="%.4f", width=120),
        "newest": make.DatetimeColumn("Newest", format="YYYY-MM-DD HH:mm", timezone=str(reader_zone()), width=140),
    }


def _narrow(key: str, values: Sequence[str | None]) -> None:
    click = st.session_state.get(_CLICK)
    if click is not None and click["row"] < len(values):
        asked = condition_text(key, values[click["row"]])
        before = st.session_state.get("q") or ""
        st.session_state["q"] = before if asked in before else f"{before} {asked}".strip()
