"""The compare page: what differs, curves over each other, and whether the scores differ by more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard import reading, state
from dashboard.components import comparison, curves, markup
from dashboard.components.lines import line_of
from dashboard.logic import pairing
from evidence.compare import compare_runs
from evidence.index import RunSummary

MOST_RUNS = 20


def page() -> None:
    """Draw the page."""
    found = reading.summaries()
    known = reading.by_name(found)
    markup.heading("Compare", lines=["The first run is held against each of the others."])
    if len(known) < 2:
        markup.empty("Two runs are needed", "Start another one on the Launch page.")
        return
    chosen = _chosen(found, list(known))
    if len(chosen) < 2:
        markup.empty("Choose two or more runs", "Or let the preset pair a smoke run with the full run it rehearsed.")
        return
    folders = [known[name].path for name in chosen]
    compared = compare_runs([reading.run_of(folder) for folder in folders])
    comparison.headlines(compared)
    if compared.smoke is not None:
        comparison.smoke(compared.smoke)
    comparison.settings(compared)
    _curves(chosen, known)
    for pair in compared.pairs:
        comparison.score(pair)


def _chosen(found: Sequence[RunSummary], names: list[str]) -> list[str]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.multiselect(
            "Runs", names, key="runs", bind="query-params", max_selections=MOST_RUNS, placeholder="newest first"
        )
        pair = pairing.smoke_and_full(found)
        preset = st.button(
            "Smoke against full",
            icon=":material/science:",
            disabled=pair is None,
            help="The newest full run, and the newest smoke run of the same method that ran before it.",
        )
    if preset and pair is not None:
        state.go(state.COMPARE, runs=list(pair))
    return chosen


def _curves(names: Sequence[str], known: Mapping[str, RunSummary]) -> None:
    st.header("Curves", anchor=False)
    lines = [line_of(name, reading.run_of(known[name].path), known)[0] for name in names]
    drawn = [line for line in lines if line.series.rows]
    if not drawn:
        markup.note("None of these runs has metrics.")
        return
    curves.show(drawn, key="compare_curves", name="compared")
    missing = [line.name for line in lines if not line.series.rows]
    if missing:
        markup.note(f"Without metrics: {', '.join(missing)}")


page()
