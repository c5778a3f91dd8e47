"""The figure of a plan: the memory of each program against the limit of the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from dashboard.shared.charts.theme import Palette, choose_unit, label, template
from dashboard.shared.tables.planned import MemoryPart
from dashboard.shared.words import VERDICTS, part_name
from schemas.formats import size

_FAR = 6.0
"""Limits further away than this many times the longest bar are not drawn, to keep the bars readable."""
_ROW_PIXELS, _FRAME_PIXELS = 56, 120

_USES: Mapping[str, str] = {
    "params": "parameters",
    "frozen": "parameters",
    "adapters": "parameters",
    "opt_state": "optimizer state",
    "gradients": "gradients",
    "table_gradient": "gradients",
    "activations": "activations",
    "layer_inside": "activations",
    "layer_inputs": "activations",
    "logits": "logits",
    "key_value_cache": "key-value cache",
    "cache": "key-value cache",
}


def memory(parts: Sequence[MemoryPart], colours: Palette, *, observed: float | None = None) -> go.Figure:
    """Draw one stacked bar per program (at least one), and the observed peak memory in bytes if it was measured."""
    divisor, unit = choose_unit("bytes", max(part.peak for part in parts))
    bars = pd.DataFrame(
        {
            "row": f"{label(part.program)}<br>{VERDICTS[part.verdict].symbol} {size(part.peak)}",
            "use": _USES.get(part.name, "other"),
            "length": part.bytes / divisor,
            "text": f"{label(part_name(part.name))}: {size(part.bytes)}<br>{label(part.because)}",
        }
        for part in parts
    )
    totals = bars.groupby("row", sort=False)["length"].sum()
    lines = {f"usable {size(part.limit)}": part.limit for part in parts if part.limit is not None}
    if observed is not None:
        lines[f"observed {size(observed)}"] = observed
    figure = px.bar(
        bars,
        x="length",
        y="row",
        color="use",
        color_discrete_map=dict(colours.parts),
        category_orders={"use": list(colours.parts), "row": list(totals.index)},
        custom_data=["text"],
        orientation="h",
        height=_FRAME_PIXELS + _ROW_PIXELS * len(totals),
        template=template(colours),
    )
    figure.update_traces(hovertemplate="%{customdata[0]}<extra></extra>", marker_line_color=colours.paper)
    near = {name: value / divisor for name, value in lines.items() if value / divisor <= _FAR * totals.max()}
    for (name, value), dash in zip(near.items(), cycle(("dash", "dot")), strict=False):
        figure.add_vline(x=value, line={"color": colours.ink, "width": 2, "dash": dash}, name=name, showlegend=True)
    figure.update_xaxes(title_text=f"{unit} per device", range=[0, 1.04 * max([totals.max(), *near.values()])])
    figure.update_yaxes(title_text="", showticklabels=len(totals) > 1, tickfont_color=colours.ink)
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "title_text": ""}
    return figure.update_layout(showlegend=True, legend=legend)
