"""The curves of runs, the controls above them, and their export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from dashboard.shared import reading
from dashboard.shared.charts import foreign_run
from dashboard.shared.charts.curves import (
    LOG_RATIO,
    CurveOptions,
    RecordedRun,
    RunLine,
    Scale,
    axes,
    curves_csv,
    draw,
    line_with_parents,
)
from dashboard.shared.charts.theme import palette as theme_palette
from dashboard.shared.parts import markup
from evidence.index.summary import RunSummary
from evidence.run import Run

_LOG_X, _CLIP = "log x", "hide outliers"
_SMOOTHING_WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)


def load_line(name: str, run: Run, known: Mapping[str, RunSummary]) -> tuple[RunLine, str]:
    """Return the curves of a run, and a remark on them (empty for none)."""
    view, summary = run.foreign(), known.get(name)
    if view is not None:
        return foreign_run.build_line(name, view)
    has_parent = bool(run.manifest and run.manifest.get("parent"))
    by_id = {summary.run_id: summary for summary in known.values()} if has_parent else {}

    def find(run_id: str) -> RecordedRun | None:
        return _recorded(reading.load_run(by_id[run_id].path)) if run_id in by_id else None

    line, missing = line_with_parents(name, _recorded(run), find)
    remark = f"Its parent {missing} is not in this folder, so the curves begin where it was resumed." if missing else ""
    if summary is not None and summary.grade == "contradictory":
        line = replace(line, is_doubtful=True)
        remark = f"This run is contradictory, so it is drawn grey. {remark}".strip()
    return line, remark


def _recorded(run: Run) -> RecordedRun:
    return RecordedRun(run.manifest, reading.load_series(run.path))


def _controls() -> CurveOptions:
    """Draw the controls and return their values, which are part of the URL."""
    shared: dict[str, Any] = {"required": True, "bind": "query-params"}
    title = axes().__getitem__
    x = st.segmented_control("X axis", list(axes()), default="step", format_func=title, key="x", **shared)
    loss: Scale = st.segmented_control(
        "Loss",
        ["auto", "linear", "log"],
        default="auto",
        key="loss",
        help=f"Auto is logarithmic if a loss falls by more than a factor of {LOG_RATIO:.0f}.",
        **shared,
    )
    scales = st.pills(
        "Scale",
        [_LOG_X, _CLIP],
        selection_mode="multi",
        key="scale",
        bind="query-params",
        help="Use a logarithmic x axis. Hide the lowest and the highest percent of the values of each panel.",
    )
    smoothing = st.segmented_control(
        "Smoothing",
        _SMOOTHING_WEIGHTS,
        default=0.0,
        format_func=lambda weight: f"{weight:g}" if weight else "none",
        key="smooth",
        help="Weight of an exponential moving average in both directions. The measured curve stays visible.",
        **shared,
    )
    return CurveOptions(x=x, loss=loss, log_x=_LOG_X in scales, clip=_CLIP in scales, smoothing=smoothing)


def draw_curves(lines: Sequence[RunLine], *, key: str, name: str) -> None:
    """Draw the controls and the curves of these runs; exported files are named after `name`."""
    names = ", ".join(line.name for line in lines)
    zooms: dict[tuple[str, str], tuple[float, float]] = st.session_state.setdefault("zooms of curves", {})
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        options = _controls()
        with st.popover("Export", icon=":material/download:"):
            csv = f"{name}-curves.csv"
            markup.download("CSV, every row", lambda: curves_csv(lines), csv, mime="text/csv", icon=None)
            for_print = st.toggle("For print", key="print", help="Draw on white paper and save as SVG.")
            st.caption(f"The camera above the curves saves them as {'SVG' if for_print else 'PNG'}.")
        zoomed = (names, options.x)
        is_zoomed = zoomed in zooms
        st.button("Reset zoom", icon=":material/zoom_out_map:", on_click=zooms.clear, disabled=not is_zoomed)
    theme = "light" if for_print else st.context.theme.type or "light"
    options = replace(options, zoom=zooms.get(zoomed))
    colours: Sequence[str] = st.get_option(f"theme.{theme}.chartCategoricalColors")
    chart = draw(lines, options, theme_palette(theme), colours)

    def zoom() -> None:
        for box in st.session_state[key]["selection"]["box"]:
            low, high = sorted(box["x"])
            zooms[zoomed] = (low * chart.x_divisor, high * chart.x_divisor)

    markup.show_figure(
        chart.figure,
        key=key,
        alt=f"Training curves of {names}: {', '.join(chart.titles)}",
        name=f"{name}-curves",
        on_box=zoom,
        saved_as="svg" if for_print else "png",
    )
    st.caption(f"Drag across the curves to zoom. {chart.remark}")
