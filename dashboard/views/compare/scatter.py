"""Scatter: any two settings or figures of the runs against each other, coloured by a third."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared import state
from dashboard.shared.parts import markup
from dashboard.shared.parts.run_box import MAX_SIDE_BY_SIDE, SIDE_BY_SIDE, hold_side_by_side
from dashboard.shared.tables.runs import cell_text
from dashboard.shared.words import csv_text
from dashboard.views.compare.side_by_side import PLOT_CONFIG
from evidence.compare.settings import NO_SETTINGS, setting_rank
from evidence.index.summary import RunSummary
from schemas.formats import NOTHING, quantity

_FIELDS = {
    "score": "score",
    "loss": "last_loss",
    "steps": "steps_done",
    "tokens": "tokens_seen",
    "seconds": "duration_seconds",
    "baseline": "baseline_score",
} | {name: name for name in ("grade", "mode", "status", "model", "method", "device")}
"""Attributes of a run by the names of their axes, in addition to all settings and figures."""
_RESULTS = ("score", "loss", "steps")
_MAX_GROUPS = 10
OTHER = "other"


def draw(found: Sequence[RunSummary], picked: Sequence[RunSummary]) -> None:
    """Draw the plot and the table of the selected runs, or of all runs."""
    runs = picked if len(picked) > 1 else found
    names = value_names(runs)
    default_x, default_y = default_axes(runs)
    if default_y not in names:
        markup.empty("Nothing to draw", "No score, loss or steps in these runs.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = _choose("X axis", names, default_x, key="x_axis")
        y = _choose("Y axis", names, default_y, key="y_axis")
        colour = _choose("Colour by", names, None, key="colour")
        scale: Any = {"options": ["auto", "linear", "log"], "default": "auto", "required": True, "bind": "query-params"}
        about = "auto: logarithmic if the largest value is at least ten times the smallest."
        x_scale = st.segmented_control("X scale", key="x_scale", help=about, **scale)
        y_scale = st.segmented_control("Y scale", key="y_scale", help=about, **scale)
        frame = values_frame(runs, list(filter(None, ["run", x, y, colour])))
        markup.download("CSV", lambda: csv_text(frame), "scatter.csv", mime="text/csv")
    complete = frame.dropna(subset=[x, y])
    logs = {name for name, scale in ((x, x_scale), (y, y_scale)) if is_log(complete[name], scale)}
    is_shown = is_drawable(frame, runs, [x, y], logs)
    if is_shown.any():
        st.plotly_chart(
            scatter_figure(frame[is_shown], x, y, colour, logs),
            key="scatter",
            config=dict(PLOT_CONFIG),
            alt=f"Scatter plot of {y} against {x}, a point per run",
        )
    if hidden := len(runs) - is_shown.sum():
        why = "contradictory, without a value, or not positive on a logarithmic axis"
        markup.note(f"{hidden:,} of {quantity(len(runs), 'run')} not shown: {why}.")
    _draw_table(frame, runs)


def _choose(label: str, names: Sequence[str], default: str | None, *, key: str) -> Any:
    return st.selectbox(
        label,
        names,
        index=names.index(default) if default in names else None if default is None else 0,
        key=key,
        bind="query-params",
        width=240,
        filter_mode="contains",
    )


def read_value(run: RunSummary, name: str) -> str | float | None:
    """Return an attribute, figure or setting of a run, or None."""
    if name == "run":
        return run.path.name
    return getattr(run, _FIELDS[name]) if name in _FIELDS else run.settings.get(name, run.figures.get(name))


def value_names(runs: Sequence[RunSummary]) -> list[str]:
    """Return the names of all values: attributes, then settings, then figures."""
    attributes = [name for name in _FIELDS if any(read_value(run, name) is not None for run in runs)]
    settings, figures = {name for run in runs for name in run.settings}, {name for run in runs for name in run.figures}
    return list(dict.fromkeys([*attributes, *sorted(settings), *sorted(figures)]))


def values_frame(runs: Sequence[RunSummary], names: Sequence[str]) -> pd.DataFrame:
    """Return a column per name, of numbers if all its values are numbers, else of text; missing values are null."""
    columns = {}
    for name in dict.fromkeys(names):
        values: list[Any] = [read_value(run, name) for run in runs]
        is_text = any(isinstance(value, str | bool) for value in values)
        texts = [None if value is None else cell_text(value) for value in values]
        columns[name] = pd.Series(texts if is_text else values, dtype="object" if is_text else "float64")
    return pd.DataFrame(columns)


def default_axes(runs: Sequence[RunSummary]) -> tuple[str, str]:
    """Return the first axes: the most influential setting that differs, if possible a number, and a result."""
    values: dict[str, set[object]] = {}
    for name, value in (pair for run in runs for pair in run.settings.items() if pair[0] not in NO_SETTINGS):
        values.setdefault(name, set()).add(value)
    is_text = {name: any(isinstance(value, str | bool) for value in found) for name, found in values.items()}
    varied = [name for name, found in values.items() if len(found) > 1]
    x = min(varied, key=lambda name: (is_text[name], setting_rank(name), name), default="model")
    return x, max(_RESULTS, key=lambda name: sum(read_value(run, name) is not None for run in runs))


def is_log(values: pd.Series, scale: str) -> bool:
    """Return whether an axis is logarithmic: numbers only, and for `auto` if they span a decade."""
    is_wide = values.dtype != object and bool(0 < 9.999999 * values.min() <= values.max())
    return values.dtype != object and (scale == "log" or (scale == "auto" and is_wide))


def is_drawable(frame: pd.DataFrame, runs: Sequence[RunSummary], axes: Sequence[str], logs: set[str]) -> pd.Series:
    """Return which runs have a point: both values, positive ones on a logarithmic axis, and no contradiction."""
    is_sound = pd.Series([run.grade != "contradictory" for run in runs])
    return is_sound & frame[[*axes]].notna().all(axis=1) & (frame[[*logs]] > 0).all(axis=1)


def scatter_figure(frame: pd.DataFrame, x: str, y: str, colour: str | None, logs: set[str]) -> go.Figure:
    """Draw a point per row of a frame with a column per value, named by `x`, `y`, `colour` and the log axes.

    Text and up to ten different numbers get colours and symbols, more numbers a colour scale.
    """
    points = frame.map(lambda value: markup.safe(value) if isinstance(value, str) else value)
    groups: list[str] = []
    if colour is not None and (frame[colour].dtype == object or frame[colour].nunique() <= _MAX_GROUPS):
        names = frame[colour].map(lambda value: f"{value:g}" if isinstance(value, float) else value, na_action="ignore")
        most = names.value_counts().index[:_MAX_GROUPS]
        points["group"] = names.where(names.isin(most) | names.isna(), OTHER).fillna(NOTHING).map(markup.safe)
        order = frame[colour].groupby(names).first().sort_values().index
        groups = [*(markup.safe(name) for name in order if name in most), NOTHING, OTHER]
    figure = px.scatter(
        points,
        x=x,
        y=y,
        color="group" if groups else colour,
        symbol="group" if groups else None,
        category_orders={"group": groups},
        labels={name: markup.safe(name) for name in frame} | {"group": markup.safe(colour or "")},
        hover_name="run",
        log_x=x in logs,
        log_y=y in logs,
        height=480,
    )
    figure.update_xaxes(exponentformat="power").update_yaxes(exponentformat="power")
    return figure.update_traces(marker_size=11).update_layout(margin_t=20)


def _draw_table(frame: pd.DataFrame, runs: Sequence[RunSummary]) -> None:
    """Draw the runs, and the buttons that open the selected ones."""
    names = [run.path.name for run in runs]
    event = st.dataframe(
        frame,
        hide_index=True,
        placeholder=NOTHING,
        # Rows are selected by number, so other runs need another key.
        key=f"scatter_runs {hash(tuple(names))}",
        on_select="rerun",
        selection_mode="multi-row",
        column_config={"run": st.column_config.TextColumn(pinned=True, width=180)},
        alt="Runs of the scatter plot, one per row",
    )
    selected = [names[place] for place in event["selection"]["rows"] if place < len(names)]
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Open", disabled=len(selected) != 1, icon=":material/show_chart:", type="primary"):
            state.go(state.RUN, run=selected[0])
        st.button(
            SIDE_BY_SIDE,
            disabled=not 2 <= len(selected) <= MAX_SIDE_BY_SIDE,
            icon=":material/compare_arrows:",
            help=f"Compare two to {MAX_SIDE_BY_SIDE} selected runs.",
            on_click=hold_side_by_side,
            args=[selected],
        )
        markup.note(f"{len(selected):,} of {quantity(len(runs), 'run')} selected.")
