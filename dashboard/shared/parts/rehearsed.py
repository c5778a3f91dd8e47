"""What a smoke run rehearsed of a full run: its stages above those of the full run, and a card on both runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.parts import gate, launching, markup
from dashboard.shared.session import reading, state
from dashboard.shared.words.grades import Sign
from evidence.compare.smoke import RunStage, SmokeCheck, find_full_runs, find_smoke_runs
from evidence.index.summary import RunSummary
from evidence.run import Run
from schemas import formats

TAB = "Smoke → TPU"
"""The part of the page of comparison that holds a smoke run against a full one."""
MAKE = "Make the smoke run of this configuration"

_STATES: Mapping[str, Sign] = {
    "passed": Sign(symbol="✓", tone="good", meaning="It was done."),
    "not exercised": Sign(symbol="–", tone="quiet", meaning="It was not asked for, or the run ended before it."),
    "failed": Sign(symbol="✕", tone="bad", meaning="The run failed or broke off here."),
}


def boxes(found: SmokeCheck) -> None:
    """Draw eight boxes, one for each stage: the smoke run above the full run."""
    inside = "".join(
        f"<li><b>{markup.safe(theirs.name if ours.name.endswith('steps') else ours.name)}</b>"
        f"{_state('smoke', ours)}{_state('full', theirs)}</li>"
        for ours, theirs in zip(found.smoke_stages, found.full_stages, strict=True)
    )
    st.html(f'<ol class="tp-stages" aria-label="Stages, smoke run above full run">{inside}</ol>')


def card(summary: RunSummary, run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw what a run rehearsed or what rehearsed it; of a full run that nothing rehearsed, the button that does."""
    is_smoke = summary.mode == "smoke"
    found = (find_full_runs if is_smoke else find_smoke_runs)(summary, known.values())
    if not found and (is_smoke or summary.mode != "full" or not summary.settings):
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="rehearsal"):
        if not found:
            markup.note("No smoke run rehearsed this configuration.")
            make_button(run)
            return
        smoke, full = (summary, found[0]) if is_smoke else (found[0], summary)
        told = reading.rehearsal_of(smoke.path, full.path)
        stages = " · ".join(f"{_STATES[stage.state].symbol} {stage.name}" for stage in told.smoke_stages)
        markup.note(f"{told.summary} {stages}")
        if st.button(TAB, icon=":material/science:"):
            state.go(state.COMPARE, part=TAB, full=full.path.name, smoke=smoke.path.name)


def make_button(run: Run) -> None:
    """Draw the button that puts the smoke run of a run's configuration into the queue."""
    if run.config is not None and gate.may_operate() and st.button(MAKE, icon=":material/science:", type="primary"):
        launching.start(configs.smoke_of(run.config))


def names_of(found: Sequence[RunSummary]) -> list[str]:
    """Return the names of runs, in their order."""
    return [summary.path.name for summary in found]


def _state(whose: str, stage: RunStage) -> str:
    sign = _STATES[stage.state]
    said = stage.state if stage.seconds is None else formats.duration(stage.seconds)
    beside = f" ({stage.name})" if whose == "smoke" and stage.name.endswith("steps") else ""
    return (
        f'<span class="tp-{sign.tone}" title="{markup.safe(sign.meaning)}"><small>{whose}</small> '
        f"{sign.symbol} {markup.safe(said + beside)}</span>"
    )
