"""The curves, the controls above them, and what they are exported as."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import streamlit as st

from dashboard.shared.charts.curves import FAR, CurveOptions, Plot, Scale, plot
from dashboard.shared.charts.echarts import drawing
from dashboard.shared.charts.line import DASHES, DOUBTFUL, RunLine, curves_csv
from dashboard.shared.charts.panels import axes
from dashboard.shared.parts import markup

_LOG_X, _CLIP = "log x", "hide outliers"
_PAPER, _PRINTED = "#ffffff", "light"
_WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)


def controls() -> CurveOptions:
    """Draw the controls, whose values stand in the address, and return their values."""
    x = st.segmented_control(
        "X axis",
        list(axes()),
        default="step",
        required=True,
        format_func=lambda axis: axes()[axis],
        key="x",
        bind="query-params",
    )
    loss: Scale = st.segmented_control(
        "Loss",
        ["auto", "linear", "log"],
        default="auto",
        required=True,
        key="loss",
        bind="query-params",
        help=f"auto: logarithmic where a loss falls to less than a {FAR:.0f}th.",
    )
    scales = st.pills(
        "Scale",
        [_LOG_X, _CLIP],
        selection_mode="multi",
        key="scale",
        bind="query-params",
        help="A logarithmic x axis. Without outliers, each panel shows the middle 98 of 100 values; the number of "
        "points outside is stated below.",
    )
    smoothing = st.segmented_control(
        "Smoothing",
        _WEIGHTS,
        default=_WEIGHTS[0],
        required=True,
        format_func=lambda weight: f"{weight:g}" if weight else "none",
        key="smooth",
        bind="query-params",
        help="Weight of an exponential moving average to both sides. The measured line stays visible behind it.",
    )
    return CurveOptions(x=x, loss=loss, log_x=_LOG_X in scales, clip=_CLIP in scales, smoothing=smoothing)


def show(lines: Sequence[RunLine], *, key: str, name: str, beside: Callable[[], None] | None = None) -> None:
    """Draw the controls and the curves of these runs.

    Each line gets a colour of the reader's theme, and a stroke where colours repeat; `beside` draws into the menu.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        view = controls()
        for_print = _export(lines, name, beside)
    # Print is on white paper, whatever the reader's theme, and sharp at any size.
    theme = _PRINTED if for_print else st.context.theme.type
    plotted = plot(_told_apart(lines, theme), view)
    title = ", ".join(line.name for line in lines)
    drawn = drawing(plotted, ink=ink(theme), paper=_PAPER if for_print else "", title=title)
    renderer: Literal["svg", "canvas"] = "svg" if for_print else "canvas"
    st.echarts_chart(
        drawn.option, height=drawn.height, key=f"{key} {renderer}", renderer=renderer, alt=_alt(plotted, lines)
    )
    if plotted.remark:
        st.caption(plotted.remark)


def palette(size: int, theme: str | None = None) -> Sequence[str]:
    """Return a colour for each of `size` runs, from a theme; by default the one that the reader sees."""
    colours = _colours(theme)
    return [colours[index % len(colours)] for index in range(size)]


def ink(theme: str | None = None) -> str:
    """Return the colour of the words beside a picture, in the reader's theme by default, at least 4.5 : 1."""
    return "#b4bfc7" if (theme or st.context.theme.type) == "dark" else "#4a5761"


def _colours(theme: str | None) -> Sequence[str]:
    colours: Sequence[str] = st.get_option(f"theme.{theme or st.context.theme.type or 'light'}.chartCategoricalColors")
    return colours


def _told_apart(lines: Sequence[RunLine], theme: str | None = None) -> list[RunLine]:
    """Return the lines, no two of them of one colour and one stroke; those that contradict themselves all in grey."""
    strokes = itertools.cycle(itertools.product(DASHES, _colours(theme)))
    told = zip(lines, strokes, strict=False)
    return [
        replace(line, colour=ink(theme), dashes=DOUBTFUL)
        if line.is_doubtful
        else replace(line, colour=colour, dashes=dashes)
        for line, (dashes, colour) in told
    ]


def _export(lines: Sequence[RunLine], name: str, beside: Callable[[], None] | None) -> bool:
    """Draw the menu of exports, and return whether the curves are to be drawn for print."""
    with st.popover("Export", icon=":material/download:"):
        markup.download(
            "CSV, every row",
            lambda: curves_csv(lines),
            f"{name}-curves.csv",
            mime="text/csv",
            icon=None,
            width="stretch",
        )
        if beside is not None:
            beside()
        for_print = st.toggle("For print", key="print", help="On white paper, as SVG, in either theme.")
        st.caption(
            f"The arrow at the upper right of the curves saves them as {'SVG' if for_print else 'PNG'}, as shown."
        )
    return for_print


def _alt(plotted: Plot, lines: Sequence[RunLine]) -> str:
    panels = ", ".join(panel.title for panel in plotted.panels)
    return f"Training curves of {', '.join(line.name for line in lines)}: {panels}"
