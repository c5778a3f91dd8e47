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


def show(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    name: str = "",
    clicked: Callable[[], None] | None = None,
    is_chosen_from: bool = False,
) -> Any:
    """Draw a picture, and return which of its points are chosen.

    Args:
        figure: With a template of its own; Streamlit's is not used (docs/contributing/architecture.md).
        key: Of the picture on its page.
        alt: What it shows, for who cannot see it.
        name: Name of the file that it is saved as, without an ending; by default the key.
        clicked: What a click on a point does; the point is in the session under `key`. None: nothing.
        is_chosen_from: Whether several of its points can be chosen, and one can zoom.
    """
    buttons = [["select2d", "lasso2d", "zoom2d", "resetScale2d"], ["toImage"]] if is_chosen_from else [["toImage"]]
    saved = {"format": "svg", "filename": name or key}
    tools = {"displaylogo": False, "modeBarButtons": buttons, "toImageButtonOptions": saved}
    chosen: Any = {"on_select": "rerun"} if is_chosen_from else {}
    if clicked is not None:
        chosen = {"on_select": clicked, "selection_mode": "points"}
    return st.plotly_chart(figure, theme=None, key=key, alt=alt, width="stretch", config=tools, **chosen)
