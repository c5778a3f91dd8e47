"""The compare page: two to twenty runs side by side with statistics, and any number of runs in one picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import streamlit as st

from dashboard.shared.parts import curves, freshness, launching, markup, rehearsed, share
from dashboard.shared.parts.lines import line_of
from dashboard.shared.parts.run_box import MOST_SIDE_BY_SIDE, SIDE_BY_SIDE, choose_runs, go_where_held
from dashboard.shared.session import reading, state
from dashboard.views.compare.logic import strip
from dashboard.views.compare.parts import answers, comparison, relations, smoke
from evidence.index.summary import RunSummary
from evidence.run import Run

_DRAWN = "runs whose differences stand"


def page() -> None:
    """Draw the page."""
    found = reading.summaries()
    known = reading.by_name(found)
    markup.heading("Compare", lines=["Compares the first run with each of the others."])
    if len(known) < 2:
        has_one = "Start another run" if known else "There is no run yet. Start two, one after the other"
        markup.empty("Compare needs two runs", f"{has_one}; a smoke run takes seconds.")
        launching.smoke_button()
        return
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        chosen = _choose_runs(known)
    picked = [known[name] for name in chosen]
    parts: Mapping[str, Callable[[], None]] = {
        SIDE_BY_SIDE: lambda: _side_by_side(chosen, known, row),
        rehearsed.TAB: lambda: smoke.draw(found, picked),
        "Scatter": lambda: relations.draw_scatter(_many(picked, found)),
        "Parallel": lambda: relations.draw_parallel(_many(picked, found)),
    }
    for tab, draw in zip(st.tabs(list(parts), key="part", bind="query-params"), parts.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def _choose_runs(known: Mapping[str, RunSummary]) -> list[str]:
    """Return the runs that the address names; more than can be listed in a box are named by their number."""
    asked = state.asked_for("runs", known)
    if len(asked) > MOST_SIDE_BY_SIDE:
        go_where_held()
        markup.note(
            f"{len(asked):,} runs. Side by side shows the first {MOST_SIDE_BY_SIDE}; pictures show all of them."
        )
        if st.button("Choose others"):
            state.go(state.COMPARE)
        return asked
    # Before the box is drawn for the first time the address states how many there are.
    count = sum(name in known for name in st.session_state.get("runs", asked))
    # Behind a button the browser loads the box when it is requested, and the curves stand there sooner.
    label = f"Runs: {count}" if count else "Choose runs"
    return choose_runs(
        known, most=MOST_SIDE_BY_SIDE, within=st.popover(label, icon=":material/checklist:", key="chosen_runs")
    )


def _many(picked: Sequence[RunSummary], found: Sequence[RunSummary]) -> Sequence[RunSummary]:
    """Return the runs of a picture: those chosen, else those that a search leaves; archived ones when requested."""
    if len(picked) > 1:
        return picked
    text = st.text_input(
        "Runs that match",
        key="match",
        bind="query-params",
        placeholder="mode:full loss<1.2, all runs when empty",
        icon=":material/search:",
        help="As in the search of the Runs page: words, and conditions on any setting or figure.",
    )
    runs = reading.run_table(found)
    names, complaints = runs.search(text or "")
    for complaint in complaints:
        markup.note(complaint)
    return [runs.by_name[name] for name in names]


def _side_by_side(chosen: Sequence[str], known: Mapping[str, RunSummary], row: AbstractContextManager[object]) -> None:
    """Draw the comparison, and its export into the row above."""
    names = chosen[:MOST_SIDE_BY_SIDE]
    if len(names) < 2:
        markup.empty(
            f"Choose a run to compare with {names[0]}" if names else "Choose two or more runs",
            f"The button Runs: {len(names)} above opens the list." if names else "Choose runs above opens the list.",
            f"{rehearsed.TAB} shows a full run beside the smoke run that rehearsed it.",
            "Scatter and Parallel show all runs until some are chosen.",
        )
        return
    if not freshness.are_as_judged([known[name] for name in names]):
        return
    runs = {name: reading.run_of(known[name].path) for name in names}
    of_other_tools = {name: view for name, run in runs.items() if (view := run.foreign()) is not None}
    # The browser has the curves while the differences are computed; their picture comes last, as it loads Plotly.
    above = st.container()
    waiting = above.empty()
    if st.session_state.get(_DRAWN) != names:
        waiting.skeleton(strip.height_of(len(names) - 1))
    _curves(runs, known)
    compared = reading.compare([known[name].path for name in names])
    with row:
        comparison.export(compared)
        share.button([known[name].path for name in names])
    comparison.headlines(compared)
    comparison.scores_of_other_tools(of_other_tools)
    comparison.settings(compared)
    answers.draw(compared, runs)
    waiting.empty()
    st.session_state[_DRAWN] = names
    with above:
        comparison.draw_verdicts(compared)
        comparison.of_other_tools(of_other_tools)
        if compared.smoke is not None:
            markup.note(f"A smoke run and a full run: {rehearsed.TAB}, above, says what one proves of the other.")


def _curves(runs: Mapping[str, Run], known: Mapping[str, RunSummary]) -> None:
    st.header("Curves", anchor=False)
    lines, remarks = zip(*(line_of(name, run, known) for name, run in runs.items()), strict=True)
    drawn = [line for line in lines if line.rows]
    if not drawn:
        markup.note("No run here has metrics.")
        return
    curves.show(drawn, key="compare_curves", name="compared")
    said = [f"{name}: {remark}" for name, remark in zip(runs, remarks, strict=True) if remark]
    if missing := [line.name for line in lines if not line.rows]:
        said.append(f"Without metrics: {', '.join(missing)}")
    for words in said:
        markup.note(words)


page()
