"""The curves, the controls above them, and what they are exported as."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from dashboard.shared.charts.curves import Plot, View, plot
from dashboard.shared.charts.echarts import drawing
from dashboard.shared.charts.line import DASHES, Line, curves_csv
from dashboard.shared.charts.panels import axes
from dashboard.shared.charts.svg import svg

_LOG, _LOG_X, _CLIP = "log loss", "log x", "hide outliers"
_WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)


def controls() -> View:
    """Draw the controls, whose values stand in the address, and return what they say."""
    x = st.segmented_control(
        "X axis",
        list(axes()),
        default="step",
        required=True,
        format_func=lambda axis: axes()[axis],
        key="x",
        bind="query-params",
    )
    scales = st.pills(
        "Scale",
        [_LOG, _LOG_X, _CLIP],
        selection_mode="multi",
        key="scale",
        bind="query-params",
        help="A logarithmic scale of loss and gradient norm, or of the x axis. Without outliers, each panel "
        "shows the middle 98 of 100 values; the number of points outside is stated below.",
    )
    smoothing = st.segmented_control(
        "Smoothing",
        _WEIGHTS,
        default=_WEIGHTS[0],
        required=True,
        format_func=lambda weight: f"{weight:g}" if weight else "none",
        key="smooth",
        bind="query-params",
        help="Weight of an exponential moving average. The measured line stays visible behind it.",
    )
    return View(x=x, log=_LOG in scales, log_x=_LOG_X in scales, clip=_CLIP in scales, smoothing=smoothing)


def show(lines: Sequence[Line], *, key: str, name: str, beside: Callable[[], None] | None = None) -> None:
    """Draw the controls and the curves of these runs.

    Args:
        lines: What to draw; each gets a colour of the reader's theme, and a stroke of its own where colours repeat.
        key: Key of the chart on its page.
        name: What exported files are called, without an ending.
        beside: Draws what belongs into the export menu besides the curves.
    """
    coloured = _told_apart(lines)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        view = controls()
        _export(coloured, view, name, beside)
    plotted = plot(coloured, view)
    drawn = drawing(plotted, ink=ink())
    st.echarts_chart(drawn.option, height=drawn.height, key=key, alt=_alt(plotted, lines))
    if plotted.remark:
        st.caption(plotted.remark)


def palette(size: int, theme: str | None = None) -> Sequence[str]:
    """Return a colour for each of `size` runs, from a theme; by default the one that the reader sees."""
    colours = _colours(theme)
    return [colours[index % len(colours)] for index in range(size)]


def ink() -> str:
    """Return the colour of the words beside a picture in the reader's theme, at least 4.5 : 1 against its ground."""
    return "#b4bfc7" if st.context.theme.type == "dark" else "#4a5761"


def _colours(theme: str | None) -> Sequence[str]:
    colours: Sequence[str] = st.get_option(f"theme.{theme or st.context.theme.type or 'light'}.chartCategoricalColors")
    return colours


def _told_apart(lines: Sequence[Line], theme: str | None = None) -> list[Line]:
    """Return the lines, no two of them of one colour and one stroke."""
    colours = _colours(theme)
    strokes = itertools.cycle(itertools.product(DASHES, colours))
    return [replace(line, colour=colour, dashes=dashes) for line, (dashes, colour) in zip(lines, strokes, strict=False)]


def _export(lines: Sequence[Line], view: View, name: str, beside: Callable[[], None] | None) -> None:
    """Draw the menu of exports; nothing is made before it is asked for."""
    # Print is on white paper, whatever the reader's theme.
    printed = _told_apart(lines, "light")
    title = f"Training curves of {', '.join(line.name for line in lines)}"
    with st.popover("Export", icon=":material/download:"):
        st.download_button(
            "SVG, for print",
            data=lambda: svg(plot(printed, view), title=title),
            file_name=f"{name}-curves.svg",
            mime="image/svg+xml",
            on_click="ignore",
            width="stretch",
        )
        st.download_button(
            "CSV, every row",
            data=lambda: curves_csv(lines),
            file_name=f"{name}-curves.csv",
            mime="text/csv",
            on_click="ignore",
            width="stretch",
        )
        if beside is not None:
            beside()
        st.caption("PNG: the arrow at the upper right of the curves saves them as they are shown.")


def _alt(plotted: Plot, lines: Sequence[Line]) -> str:
    panels = ", ".join(panel.title for panel in plotted.panels)
    return f"Training curves of {', '.join(line.name for line in lines)}: {panels}"
