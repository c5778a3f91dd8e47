"""Card on the Run page that leads to the comparison of a smoke run with its full run."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.parts import gate, launching, markup
from dashboard.shared.session import reading, state
from evidence.compare.smoke import State, find_full_runs, find_smoke_runs
from evidence.index.summary import RunSummary
from evidence.run import Run

TAB = "Smoke → TPU"
"""Tab of the Compare page that compares a smoke run with its full run."""
START = "Start the smoke run"

STATE_LABELS: Mapping[State, str] = {"passed": "✓ passed", "failed": "✕ failed", "not exercised": "– not tested"}
"""Symbol and word of each state of a stage."""


def card(summary: RunSummary, run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw the stages that the smoke run passed, or the button that starts one for a full run without."""
    is_smoke = summary.mode == "smoke"
    found = (find_full_runs if is_smoke else find_smoke_runs)(summary, known.values())
    if not found and (is_smoke or summary.mode != "full" or not summary.settings):
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="smoke_card"):
        if not found:
            markup.note("No smoke run with this configuration yet.")
            start_button(run)
            return
        smoke, full = (summary, found[0]) if is_smoke else (found[0], summary)
        check = reading.rehearsal_of(smoke.path, full.path)
        stages = " · ".join(f"{STATE_LABELS[stage.state][0]} {stage.name}" for stage in check.smoke_stages)
        markup.note(f"{check.summary} {stages}")
        if st.button(TAB, icon=":material/science:"):
            state.go(state.COMPARE, part=TAB, full=full.path.name, smoke=smoke.path.name)


def start_button(run: Run) -> None:
    """Draw the button that queues the smoke run of a run's configuration."""
    if run.config is not None and gate.may_operate() and st.button(START, icon=":material/science:", type="primary"):
        launching.start(configs.smoke_of(run.config))
