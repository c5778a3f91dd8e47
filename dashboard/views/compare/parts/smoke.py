"""Smoke → TPU: may the long run be trusted because the short one passed? A sentence, stages, figures, what is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard.shared.charts import rehearsal_figure
from dashboard.shared.parts import freshness, launching, markup, plotted, rehearsed
from dashboard.shared.session import reading
from dashboard.shared.words.text import shorten
from dashboard.views.compare.logic import tables
from evidence.compare.smoke import SmokeCheck, find_full_runs, find_lineage, find_smoke_runs, newest_smoke_pair
from evidence.index.summary import RunSummary

_LONGEST = 160
_MOST_LISTED = 200
_LINEAGES: Mapping[str | None, str] = {
    "same configuration": "Both are of one configuration: every setting that both state is the same but for length.",
    "same but for size": "The smoke run is of a smaller model, batch or set of rows; other settings are the same.",
    None: "Their configurations differ in more than size: the smoke run is no rehearsal of this run.",
}
_FULL = "full"
_SMOKE = "smoke"


def draw(found: Sequence[RunSummary], picked: Sequence[RunSummary]) -> None:
    """Draw the part.

    A smoke run and a full run among the picked ones are the pair.
    """
    known = reading.by_name(found)
    fulls, smokes = ([run for run in found if run.mode == mode] for mode in (_FULL, _SMOKE))
    if not fulls:
        markup.empty("No full run yet", "A smoke run is a rehearsal: start the run that it rehearses.")
        launching.smoke_button()
        return
    full, smoke = _pair(fulls, smokes, found, picked)
    if full is None:
        return
    run = reading.run_of(known[full].path)
    if smoke is None:
        markup.empty(
            f"No smoke run rehearsed {full}", "It takes two steps of the very configuration, evaluation included."
        )
        with st.container(horizontal=True, horizontal_alignment="center"):
            rehearsed.make_button(run)
        return
    if freshness.are_as_judged([known[smoke], known[full]]):
        _rehearsal(known[smoke], known[full])


def _pair(
    fulls: Sequence[RunSummary], smokes: Sequence[RunSummary], found: Sequence[RunSummary], picked: Sequence[RunSummary]
) -> tuple[str | None, str | None]:
    """Draw the two boxes and return the names that are chosen, at first those of a pair by lineage."""
    asked_full, asked_smoke = _initial_pair(fulls, smokes, found, picked)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = rehearsed.names_of(fulls)
        full = st.selectbox("Full run", _first(names, asked_full), key="smoke_full", width=380)
        own = find_smoke_runs(next(run for run in fulls if run.path.name == full), smokes)
        offered = [*rehearsed.names_of(own), *(run.path.name for run in smokes if run not in own)]
        if full != asked_full or asked_smoke not in offered:
            asked_smoke = own[0].path.name if own else None
        listed = _first(offered, asked_smoke) if asked_smoke else offered[:_MOST_LISTED]
        smoke = st.selectbox(
            "Smoke run",
            listed,
            index=0 if asked_smoke else None,
            key=f"smoke_of {full}",
            placeholder="none of this configuration",
            width=380,
        )
    st.query_params[_FULL] = full
    if smoke is not None:
        st.query_params[_SMOKE] = smoke
    return full, smoke


def _initial_pair(
    fulls: Sequence[RunSummary], smokes: Sequence[RunSummary], found: Sequence[RunSummary], picked: Sequence[RunSummary]
) -> tuple[str, str | None]:
    """Return the pair to begin with: of the address, of the chosen runs, of a chosen run's lineage, the newest."""
    named = {mode: st.query_params.get(mode) for mode in (_FULL, _SMOKE)}
    if named[_FULL] in rehearsed.names_of(fulls):
        return str(named[_FULL]), named[_SMOKE]
    by_mode = {run.mode: run for run in reversed(picked)}
    full, smoke = by_mode.get(_FULL), by_mode.get(_SMOKE)
    if full is None and smoke is not None:
        full = next(iter(find_full_runs(smoke, fulls)), None)
    if full is not None:
        return full.path.name, None if smoke is None else smoke.path.name
    pair = newest_smoke_pair(found)
    return (pair[1], pair[0]) if pair else (fulls[0].path.name, None)


def _first(names: Sequence[str], first: str | None) -> list[str]:
    """Return the newest names with this one before them."""
    others = [name for name in names[:_MOST_LISTED] if name != first]
    return [first, *others] if first in names and first is not None else others


def _rehearsal(smoke: RunSummary, full: RunSummary) -> None:
    told = reading.rehearsal_of(smoke.path, full.path)
    how = find_lineage(smoke, full)
    st.html(f'<p class="tp-answer">{markup.safe(told.summary)}</p>')
    markup.note(_LINEAGES[how])
    rehearsed.boxes(told)
    left, right = st.columns([3, 2], gap="large")
    with left:
        picture = rehearsal_figure.draw(told.figures, plotted.colours())
        plotted.show(picture, key="smoke_to_tpu", alt=rehearsal_figure.describe(told.figures))
    with right:
        markup.bullets("It does not prove", told.not_proved)
        if told.proved:
            markup.bullets("It proves", told.proved)
    if told.answers:
        with st.expander(f"{len(told.answers)} questions to both"):
            _questions(told)


def _questions(check: SmokeCheck) -> None:
    answers: Mapping[bool | None, str] = {True: "✓ yes", False: "≠ no", None: "? not stated"}
    markup.table(
        ["Question", "Answer", "Smoke", "Full"],
        [
            (answer.question.capitalize(), answers[answer.same], *map(_values, tables.answer_rows(answer)))
            for answer in check.answers
        ],
    )


def _values(values: Sequence[str]) -> str:
    return ", ".join(shorten(value, _LONGEST) for value in values)
