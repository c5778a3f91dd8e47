"""The Sweeps page: all trials of a sweep, what mattered, and the best with its score on other items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared import state
from dashboard.shared.charts.theme import label, template
from dashboard.shared.parts import markup, problems
from evidence import lock
from evidence.layout import SWEEP, SWEEPS
from evidence.report import describe_sweep
from schemas.formats import NOTHING, quantity
from schemas.validate import read_document

_CLICK, _TICK_SECONDS = "sweep_trial_open", 2.0
_REPEAT = "Run `trainproof sweep FILE` again to continue it."


def page() -> None:
    """Draw the page."""
    if not (names := state.sweep_names()):
        markup.heading("Sweeps")
        markup.empty(f"No sweeps in {state.root()} yet", "`trainproof sweep FILE` trains with many settings.")
        return
    name = st.selectbox("Sweep", names, key="sweep", bind="query-params", width=320)
    is_running = lock.is_alive(state.root() / SWEEPS / name)
    st.fragment(run_every=_TICK_SECONDS if is_running else None)(_draw)(name, was_running=is_running)


def _draw(name: str, *, was_running: bool) -> None:
    folder = state.root() / SWEEPS / name
    if was_running != (is_running := lock.is_alive(folder)):
        st.rerun()
    read = read_document(folder / SWEEP, "sweep")
    markup.heading(name)
    if read.value is None or any(problem.severity == "error" for problem in read.problems):
        problems.show(read.problems)
        markup.note(_REPEAT)
        return
    document, search, trials = read.value, read.value["settings"]["search"], read.value["trials"]
    counts = pd.Series([trial["state"] for trial in trials], dtype=str).value_counts()
    said = ", ".join(f"{count} {word}" for word, count in counts.items()) or "none has begun"
    stopped = "" if is_running or document["status"] == "finished" else f" The sweep has stopped. {_REPEAT}"
    markup.note(f"{quantity(document['settings']['trials'], 'trial')}: {said}.{stopped}")
    for line in describe_sweep(document):
        markup.note(line)
    metric, is_higher = document["settings"]["metric"], document["direction"] == "maximize"
    columns = ("number", "state", "step", "value", "reason", "run")
    frame = pd.DataFrame([{key: trial[key] for key in columns} for trial in trials], columns=columns)
    for key, values in search.items():
        found = [trial["settings"].get(key) for trial in trials]
        frame[label(key)] = found if isinstance(values, dict) else list(map(str, found))
    done = frame[frame["state"] == "succeeded"]
    if frame["value"].notna().any():
        figure = _history(frame, done, metric, is_higher=is_higher)
        markup.show_figure(figure, key="sweep_history", alt=f"{metric} of each trial")
    if document["importance"]:
        shares = pd.Series(document["importance"]).sort_values()
        bars = px.bar(x=shares.to_numpy(), y=[label(key) for key in shares.index], orientation="h", title="Importance")
        markup.show_figure(_styled(bars, 120 + 32 * len(shares)), key="sweep_importance", alt="Importance of settings")
    if len(done) > 1:
        alt = f"Settings and {metric} of trials that succeeded"
        markup.show_figure(_parallel(done, metric, search), key="sweep_parallel", alt=alt)
    _draw_table(frame.sort_values("value", ascending=not is_higher, na_position="last"), metric)


def _styled(figure: go.Figure, height: int) -> go.Figure:
    return figure.update_layout(template=template(markup.colours()), height=height, xaxis_title=None, yaxis_title=None)


def _history(frame: pd.DataFrame, done: pd.DataFrame, metric: str, *, is_higher: bool) -> go.Figure:
    """Draw a point for each trial, and a line for the best so far."""
    figure = px.scatter(frame, x="number", y="value", color="state", symbol="state", title=metric)
    best = done["value"].cummax() if is_higher else done["value"].cummin()
    figure.add_scatter(x=done["number"], y=best, mode="lines", line_shape="hv", name="best so far")
    return _styled(figure, 320).update_layout(showlegend=True)


def _parallel(done: pd.DataFrame, metric: str, search: Mapping[str, Any]) -> go.Figure:
    """Draw a line for each trial; logarithmic ranges as powers of ten, and the values of a list by name."""
    columns, ticks = {}, {}
    for key, values in search.items():
        name, column, is_log = label(key), done[label(key)], isinstance(values, dict) and values.get("log") is True
        columns[f"log10 {name}" if is_log else name] = np.log10(column) if is_log else column
        if isinstance(values, list):
            columns[name] = column.map(list(map(str, values)).index)
            ticks[name] = {"tickvals": [*range(len(values))], "ticktext": [label(str(each)) for each in values]}
    figure = px.parallel_coordinates(pd.DataFrame({**columns, metric: done["value"]}), color=metric)
    for dimension in figure.data[0].dimensions:
        dimension.update(ticks.get(dimension.label, {}))
    return _styled(figure, 360).update_layout(margin={"l": 80, "r": 40, "t": 48, "b": 24})


def _draw_table(frame: pd.DataFrame, metric: str) -> None:
    opens: Any = {"pinned": True, "alignment": "left", "type": "tertiary", "key": _CLICK}
    titles = {"number": "Trial", "state": "State", "step": "Pruned at step", "value": metric, "reason": "Why it failed"}
    button: Any = st.column_config.ButtonColumn("Run", help="A click opens the run.", width=220, **opens)
    alt = "Trials of the sweep, the best first"
    columns = {**titles, "run": button}
    st.dataframe(frame, hide_index=True, placeholder=NOTHING, column_config=columns, key="sweep_trials", alt=alt)
    click = st.session_state.get(_CLICK)
    if click is not None and click["row"] < len(frame) and isinstance(run := frame["run"].iloc[click["row"]], str):
        state.go(state.RUN, run=run)


page()
