"""The runs page: every folder under the root with what it is worth; search, filter, choose, open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard import reading, state
from dashboard.components import launching, markup
from dashboard.components.runs_table import show_table
from dashboard.logic import query, runs_table
from dashboard.logic.grades import GRADES, worded
from evidence.index import RunSummary

Row = dict[str, Any]


def page() -> None:
    """Draw the page."""
    found = reading.summaries()
    if not found:
        _nothing_yet()
        return
    rows = [runs_table.values(summary) for summary in found]
    _heading(found)
    columns = _toolbar(rows)
    shown = _filtered(rows)
    if not shown:
        markup.empty("No run matches", "Take a word out of the search, or clear the filters.")
        return
    chosen = show_table(shown, columns)
    _actions(chosen, shown, columns, total=len(rows))


def _nothing_yet() -> None:
    markup.heading("Runs")
    markup.empty(
        f"No runs in {state.root()} yet",
        "A run is a folder that training writes as it goes: settings, metrics, log, predictions, and their hashes.",
        "A smoke run takes seconds on this machine and fills every page. It proves the pipeline, not the model.",
    )
    launching.smoke_button()


def _heading(found: Sequence[RunSummary]) -> None:
    counts = {name: sum(summary.grade == name for summary in found) for name in GRADES}
    signs = "".join(
        f'<span title="{markup.safe(GRADES[name].meaning)}">{markup.safe(worded(GRADES, name))} <b>{number}</b></span>'
        for name, number in counts.items()
        if number
    )
    runs = "run" if len(found) == 1 else "runs"
    lines = [f"{len(found)} {runs} in {markup.safe(state.root())}", f'<span class="tp-counts">{signs}</span>']
    markup.heading("Runs", lines=lines)


def _toolbar(rows: Sequence[Row]) -> list[str]:
    """Draw search and filters, whose values stand in the address; return the columns to show."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Search",
            key="q",
            bind="query-params",
            placeholder="gemma grade:verified loss<1.2",
            icon=":material/search:",
            help="Words must occur somewhere in the row. Conditions: field:word, field=word, field<number, "
            f"-field:word for not. Fields: {', '.join(runs_table.QUERY_FIELDS)}.",
        )
        _choice("Grade", "grade", [name for name in GRADES if any(row["grade"] == name for row in rows)])
        _choice("Mode", "mode", sorted({row["mode"] for row in rows if row["mode"]}))
        _choice("Status", "status", sorted({row["status"] for row in rows if row["status"]}))
        with st.popover("Columns", icon=":material/view_column:"):
            columns = st.multiselect(
                "Columns, in this order",
                [column.key for column in runs_table.COLUMNS if column.key != "run"],
                default=[key for key in runs_table.FIRST_CHOICE if key != "run"],
                format_func=lambda key: runs_table.column(key).title,
                key="columns",
                bind="query-params",
            )
    return ["run", *columns]


def _choice(label: str, key: str, options: Sequence[str]) -> None:
    st.multiselect(label, options, key=key, bind="query-params", placeholder="all", width=170)


def _filtered(rows: Sequence[Row]) -> list[Row]:
    asked = query.parse(st.session_state.get("q", ""), runs_table.QUERY_FIELDS)
    for complaint in asked.complaints:
        markup.note(complaint)
    kept = [row for row in rows if asked.matches(row)]
    for key in ("grade", "mode", "status"):
        wanted = st.session_state.get(key)
        if wanted:
            kept = [row for row in kept if row[key] in wanted]
    return kept


def _actions(chosen: Sequence[str], shown: Sequence[Row], columns: Sequence[str], *, total: int) -> None:
    """Draw what can be done with the chosen runs, below the table where the eye ends."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Open", disabled=len(chosen) != 1, icon=":material/show_chart:", type="primary"):
            state.go(state.RUN, run=chosen[0])
        if st.button("Compare", disabled=len(chosen) < 2, icon=":material/compare_arrows:"):
            state.go(state.COMPARE, runs=chosen)
        if st.button("Package", disabled=not chosen, icon=":material/inventory_2:"):
            state.go(state.PACKAGE, runs=chosen)
        st.download_button(
            "CSV",
            data=lambda: runs_table.as_csv(shown, columns),
            file_name="runs.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        picked = (
            f"{len(chosen)} chosen" if chosen else "Click a name to open a run; tick rows to compare or package them"
        )
        markup.note(f"{picked}; {len(shown)} of {total} shown.")


page()
