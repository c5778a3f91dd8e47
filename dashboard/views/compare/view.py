"""The Compare page: runs side by side, a smoke run with its full run, and any number of runs in a scatter plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from dashboard.shared import reading, state
from dashboard.shared.parts import gate, markup, progress
from dashboard.shared.parts.run_box import MAX_SIDE_BY_SIDE, SIDE_BY_SIDE, TO_COMPARE, choose_runs
from dashboard.views.compare import scatter, side_by_side, smoke
from evidence.index.summary import RunSummary


def page() -> None:
    """Draw the page."""
    found = reading.summaries()
    known = reading.by_name(found)
    markup.heading("Compare", lines=["The first run is the baseline."])
    if len(known) < 2:
        markup.empty(
            "Compare needs two runs",
            f"{'Start another run' if known else 'No runs yet. Start two'}; a smoke run takes seconds.",
        )
        gate.smoke_button()
        return
    toolbar = st.container(horizontal=True, vertical_alignment="bottom")
    with toolbar:
        chosen = _choose_runs(known)
    picked = [known[name] for name in chosen]
    parts: Mapping[str, Callable[[], None]] = {
        SIDE_BY_SIDE: lambda: side_by_side.draw(chosen, known, toolbar),
        progress.TAB: lambda: smoke.draw(found, picked),
        "Scatter": lambda: scatter.draw(found, picked),
    }
    for tab, draw in zip(st.tabs(list(parts), key="part", bind="query-params"), parts.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def _choose_runs(known: Mapping[str, RunSummary]) -> list[str]:
    """Return the runs in the URL; the select box only lists a limited number."""
    named = [name for name in st.query_params.get_all("runs") if name in known]
    if held := st.session_state.pop(TO_COMPARE, None):
        state.go(state.COMPARE, runs=held)
    if len(named) > MAX_SIDE_BY_SIDE:
        markup.note(f"{len(named):,} runs. Side by side shows the first {MAX_SIDE_BY_SIDE}; Scatter shows all.")
        if st.button("Choose others"):
            state.go(state.COMPARE)
        return named
    # The box has no value before it is drawn for the first time.
    count = sum(name in known for name in st.session_state.get("runs", named))
    label = f"Runs: {count}" if count else "Choose runs"
    # The browser only loads the box when the button is pressed, so the curves appear sooner.
    return choose_runs(
        known, most=MAX_SIDE_BY_SIDE, within=st.popover(label, icon=":material/checklist:", key="chosen_runs")
    )


page()
