"""The Compare page: runs side by side, a smoke run with its full run, and any number of runs in a scatter plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared import reading, state
from dashboard.shared.parts import gate, markup, progress
from dashboard.shared.parts.progress import STATE_LABELS
from dashboard.shared.parts.run_box import MAX_SIDE_BY_SIDE, SIDE_BY_SIDE, TO_COMPARE, choose_runs
from dashboard.shared.words import shorten
from dashboard.views.compare import scatter, side_by_side
from dashboard.views.compare.side_by_side import format_setting, percent_change
from evidence.compare.smoke import (
    QUESTIONS,
    RunStage,
    SmokeAnswer,
    SmokeCheck,
    SmokeFigure,
    find_full_runs,
    find_lineage,
    find_smoke_runs,
    newest_smoke_pair,
)
from evidence.index.summary import RunSummary
from schemas import formats


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
        progress.TAB: lambda: _draw_smoke(found, picked),
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


_MAX_LISTED = 200
_MAX_VALUE = 160
_LINEAGES: Mapping[str | None, str] = {
    "same configuration": "Same configuration: model, batch and data are the same, only the number of steps differs.",
    "same but for size": "The smoke run has a smaller model, batch or dataset. All other settings are the same.",
    None: "Not a smoke run of this configuration: more differs than model, batch, data and length.",
}
_STATE_COLOURS = ("green", "red", "gray")
_ANSWERS: Mapping[bool | None, str] = {True: "✓ same", False: "≠ different", None: "? unknown"}


def _draw_smoke(found: Sequence[RunSummary], picked: Sequence[RunSummary]) -> None:
    """Draw the tab; if a smoke run or a full run is selected, it is part of the pair."""
    fulls, smokes = ([run for run in found if run.mode == mode] for mode in ("full", "smoke"))
    if not fulls:
        markup.empty("No full run yet", "This compares a smoke run with the full run of the same configuration.")
        gate.smoke_button()
        return
    full, smoke = _choose_pair(fulls, smokes, _default_pair(fulls, smokes, picked))
    if smoke is None:
        markup.empty(
            f"No smoke run for {full.path.name}",
            "A smoke run takes two steps with the same configuration, and evaluates.",
        )
        with st.container(horizontal=True, horizontal_alignment="center"):
            progress.draw_smoke_button(reading.load_run(full.path))
    elif reading.are_as_judged([smoke, full]):
        _draw_check(smoke, full)


def _default_pair(
    fulls: Sequence[RunSummary], smokes: Sequence[RunSummary], picked: Sequence[RunSummary]
) -> tuple[RunSummary, RunSummary | None]:
    """Return the pair in the URL, else of the selected runs, else the newest one."""
    full, smoke = (
        next((run for run in runs if run.path.name == st.query_params.get(mode)), None)
        or next((run for run in picked if run.mode == mode), None)
        for mode, runs in (("full", fulls), ("smoke", smokes))
    )
    if full is None and smoke is not None:
        full = next(iter(find_full_runs(smoke, fulls)), None)
    if full is None and (newest := newest_smoke_pair([*fulls, *smokes])):
        full = reading.by_name(fulls)[newest[1]]
    full = full or fulls[0]
    return full, smoke or next(iter(find_smoke_runs(full, smokes)), None)


def _choose_pair(
    fulls: Sequence[RunSummary], smokes: Sequence[RunSummary], default: tuple[RunSummary, RunSummary | None]
) -> tuple[RunSummary, RunSummary | None]:
    """Draw the two boxes and return the selected runs; the smoke runs of the full run are listed first."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        listed = reading.by_name([default[0], *fulls[:_MAX_LISTED]])
        full = listed[st.selectbox("Full run", listed, key="smoke_full", width=380)]
        own = find_smoke_runs(full, smokes)
        first = [default[1]] if full == default[0] and default[1] else own[:1]
        named = reading.by_name([*first, *own, *smokes][:_MAX_LISTED])
        smoke = st.selectbox(
            "Smoke run",
            named,
            index=0 if first else None,
            key=f"smoke_of {full.path.name}",
            placeholder="none for this configuration",
            width=380,
        )
    st.query_params["full"] = full.path.name
    if smoke is None:
        st.query_params.pop("smoke", None)
    else:
        st.query_params["smoke"] = smoke
    return full, named.get(smoke or "")


def _draw_check(smoke: RunSummary, full: RunSummary) -> None:
    check = reading.load_smoke_check(smoke.path, full.path)
    st.html(f'<p class="tp-answer">{markup.safe(check.summary)}</p>')
    markup.note(_LINEAGES[find_lineage(smoke, full)])
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.header("Stages", anchor=False)
        chip = st.column_config.MultiselectColumn(options=list(STATE_LABELS.values()), color=_STATE_COLOURS)
        st.dataframe(
            stages_frame(check.smoke_stages, check.full_stages),
            column_config={"Smoke run": chip, "Full run": chip},
            hide_index=True,
            height="content",
            placeholder="",
            alt="Stages of the smoke run and the full run",
        )
    with right:
        if check.proved:
            markup.bullets("The smoke run shows", check.proved)
        markup.bullets("It does not show", check.not_proved)
    st.header("Figures", anchor=False)
    numbers = ("Smoke run", "Full run", "Expected from the smoke run")
    st.dataframe(
        figures_frame(check.figures),
        column_config={name: st.column_config.TextColumn(alignment="right") for name in numbers},
        hide_index=True,
        height="content",
        alt="Figures of the smoke run and the full run",
    )
    if check.answers:
        st.header("Configuration", anchor=False)
        markup.table(["", "Same?", "Smoke run", "Full run"], answer_rows(check))


def stages_frame(smoke: Sequence[RunStage], full: Sequence[RunStage]) -> pd.DataFrame:
    """Return a row per stage, with its state and duration in both runs."""

    def describe_time(stage: RunStage) -> str | None:
        steps = f" ({stage.name})" if stage.name.endswith(" steps") else ""
        return None if stage.seconds is None else f"{formats.duration(stage.seconds)}{steps}"

    return pd.DataFrame(
        {
            "Stage": ["steps" if stage.name.endswith(" steps") else stage.name for stage in full],
            "Smoke run": [[STATE_LABELS[stage.state]] for stage in smoke],
            "Smoke time": list(map(describe_time, smoke)),
            "Full run": [[STATE_LABELS[stage.state]] for stage in full],
            "Full time": list(map(describe_time, full)),
        }
    )


def figures_frame(figures: Sequence[SmokeFigure]) -> pd.DataFrame:
    """Return a row per figure: both runs, the value that the smoke run predicts, and the difference from it."""
    return pd.DataFrame(
        [
            {
                "Group": figure.band.capitalize(),
                "Figure": figure.name.capitalize(),
                "Smoke run": figure.smoke.text,
                "Full run": figure.full.text,
                "Expected from the smoke run": figure.expected.text if figure.expected else formats.NOTHING,
                "Difference": describe_difference(figure),
            }
            for figure in figures
        ]
    )


def describe_difference(figure: SmokeFigure) -> str:
    """Describe how the full run differs from the prediction, or why it was not predicted."""
    if figure.agrees is not None:
        return "✓ equal" if figure.agrees else "≠ different"
    if figure.remark:
        return f"{formats.NOTHING} {figure.remark}"
    if figure.expected is None or not figure.expected.number or figure.full.number is None:
        return formats.NOTHING
    return percent_change(figure.expected.number, figure.full.number)


def answer_rows(check: SmokeCheck) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row per question about both runs: what is compared, the answer, and the values of both."""
    for answer in check.answers:
        smoke, full = (shorten(_format_values(answer, values), _MAX_VALUE) for values in (answer.smoke, answer.full))
        yield answer.question.removeprefix("same ").capitalize(), _ANSWERS[answer.same], smoke, full


def _format_values(answer: SmokeAnswer, values: Sequence[Any]) -> str:
    fields = dict(QUESTIONS).get(answer.question)
    if fields is None:
        return ", ".join(map(str, values))
    names = [field.rpartition(".")[2].replace("_", " ") for field in fields]
    texts = [f"{value:,}" if isinstance(value, int) else format_setting(value) for value in values]
    known = [value is not None for value in values]
    return ", ".join(f"{name} {text}" for name, text, is_known in zip(names, texts, known, strict=True) if is_known)


page()
