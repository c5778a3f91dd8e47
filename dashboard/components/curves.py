"""The curves and the controls above them. What is drawn is decided in `dashboard.logic.curves`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from dashboard.logic.curves import AXES, Axis, Line, drawing
from dashboard.logic.series import Series


@dataclass(frozen=True, kw_only=True)
class View:
    """How the reader wants to see curves."""

    x: Axis
    log: bool
    smoothing: float


def controls(*beside: Callable[[], None]) -> View:
    """Draw the controls, whose values stand in the address, and what belongs beside them; return the values."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        x = st.segmented_control(
            "Along the bottom",
            list(AXES),
            default="step",
            required=True,
            format_func=lambda axis: AXES[axis],
            key="x",
            bind="query-params",
        )
        scale = st.segmented_control(
            "Scale of loss",
            ["linear", "logarithmic"],
            default="linear",
            required=True,
            key="scale",
            bind="query-params",
        )
        smoothing = st.number_input(
            "Smoothing",
            0.0,
            0.99,
            0.0,
            0.1,
            format="%.2f",
            key="smooth",
            bind="query-params",
            width=150,
        )
        for button in beside:
            button()
    return View(x=x, log=scale == "logarithmic", smoothing=smoothing)


def show(series: Mapping[str, Series], view: View, *, key: str) -> None:
    """Draw the curves of these runs, by name."""
    lines = [
        Line(name=name, series=read, colour=colour)
        for (name, read), colour in zip(series.items(), palette(len(series)), strict=True)
    ]
    drawn = drawing(lines, x=view.x, log=view.log, smoothing=view.smoothing)
    st.echarts_chart(drawn.option, height=drawn.height, key=key, alt=f"Training curves of {', '.join(series)}")
    if drawn.remark:
        st.caption(drawn.remark)


def palette(size: int) -> Sequence[str]:
    """Return a colour for each of `size` runs, from the theme that the reader sees."""
    theme = st.context.theme.type or "light"
    colours = st.get_option(f"theme.{theme}.chartCategoricalColors")
    return [colours[index % len(colours)] for index in range(size)]
