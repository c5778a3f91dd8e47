"""Drawing a picture of Plotly: in the colours of the reader's theme, with a button that saves it as SVG."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard.shared.charts.plan_figures import Palette, palette

if TYPE_CHECKING:
    import plotly.graph_objects as go


def colours() -> Palette:
    """Return the colours of the theme that the reader sees."""
    return palette(st.context.theme.type)


def show(figure: go.Figure, *, key: str, alt: str, clicked: Callable[[], None] | None = None) -> None:
    """Draw a picture.

    Args:
        figure: With a template of its own; Streamlit's is not used (docs/decisions/charts.md).
        key: Of the picture on its page, and the name of the file that it is saved as.
        alt: What it shows, for who cannot see it.
        clicked: What a click on a point does; the point is in the session under `key`. None: nothing.
    """
    tools = {"displaylogo": False, "modeBarButtons": [["toImage"]]}
    saved = {"toImageButtonOptions": {"format": "svg", "filename": key}}
    chosen: Any = {} if clicked is None else {"on_select": clicked, "selection_mode": "points"}
    st.plotly_chart(figure, theme=None, key=key, alt=alt, width="stretch", config=tools | saved, **chosen)
