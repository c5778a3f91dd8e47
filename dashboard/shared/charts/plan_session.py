"""The time of a plan as bars: what a session and a week are spent on, against their limits."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, limit_line, new_figure, unit_of_seconds
from dashboard.shared.tables.plan_time import Limit, Part, total
from schemas.problems.formats import duration

_HEIGHT = 150
_TOO_SMALL = 0.02
"""A share below this is said, and its limit is not drawn: the bar could not be seen beside it."""


def session(found: Sequence[Part], within: Sequence[Limit], colours: Palette) -> go.Figure:
    """Return the parts as one bar, with the band of the whole and the limits that are near.

    Args:
        found: At least one part that takes time.
        within: The limits of the target.
        colours: Of the reader's theme.
    """
    whole = total(found)
    drawn = [one for one in within if whole.high >= _TOO_SMALL * one.seconds]
    right = max([whole.high, *(one.seconds for one in drawn)])
    divisor, unit = unit_of_seconds(right)
    figure = new_figure(colours, height=_HEIGHT)
    begin = 0.0
    for part in found:
        _add_part(figure, part, begin / divisor, divisor, colours)
        begin += part.seconds.likely
    figure.add_scatter(
        x=[whole.likely / divisor],
        y=[-0.44],
        mode="markers",
        marker={"color": colours.ink, "size": 8, "symbol": "diamond"},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(whole.high - whole.likely) / divisor],
            "arrayminus": [(whole.likely - whole.low) / divisor],
            "color": colours.quiet,
            "thickness": 1.5,
            "width": 4,
        },
        hovertext=[f"all together: {duration(whole.low)} to {duration(whole.high)}"],
        hoverinfo="text",
    )
    for one in drawn:
        words = f"{one.name} {duration(one.seconds).replace(' 00 min', '')}"
        limit_line(figure, colours, at=one.seconds / divisor, rows=(-0.6, 0.42), words=words)
    figure.update_xaxes(title_text=unit, range=[0, 1.06 * right / divisor])
    figure.update_yaxes(visible=False, range=[-0.6, 0.5])
    return figure


def _add_part(figure: go.Figure, part: Part, begin: float, divisor: float, colours: Palette) -> None:
    fill = colours.times[part.name]
    likely = part.seconds.likely
    band = f"{duration(part.seconds.low)} to {duration(part.seconds.high)}"
    figure.add_bar(
        orientation="h",
        x=[likely / divisor],
        base=[begin],
        y=[0],
        width=0.6,
        marker={"color": fill, "line": {"color": colours.paper, "width": 1}},
        text=[part.name],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": colours.on(fill), "size": 12},
        hovertext=f"{part.name}: {duration(likely)} ({band})<br>{label(part.because)}",
        hoverinfo="text",
    )
