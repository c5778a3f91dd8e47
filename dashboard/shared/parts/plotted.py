"""Plotly figures on a page: in the colours of the reader's theme, with a button that saves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from dashboard.shared.charts.plan_figures import Palette, palette

if TYPE_CHECKING:
    import plotly.graph_objects as go


def colours() -> Palette:
    """Return the colours of the reader's theme."""
    return palette(st.context.theme.type)


def show_figure(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    name: str = "",
    clicked: Callable[[], None] | None = None,
    selects: Literal["points", "box"] = "points",
    saved_as: Literal["svg", "png"] = "svg",
) -> Any:
    """Draw a figure and return its selected points.

    Args:
        figure: A figure with its own template; Streamlit's theme is not applied.
        key: Key of the chart.
        alt: Description for screen readers.
        name: Name of the saved file without its ending; by default the key.
        clicked: Callback of a selection, which is in the session state under `key`.
        selects: What `clicked` follows: a click on a point, or a box drawn with the mouse.
        saved_as: Format of the saved file.
    """
    config = {
        "displaylogo": False,
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": saved_as, "filename": name or key, "scale": 2 if saved_as == "png" else 1},
    }
    chosen: Any = {} if clicked is None else {"on_select": clicked, "selection_mode": selects}
    return st.plotly_chart(figure, theme=None, key=key, alt=alt, width="stretch", config=config, **chosen)
