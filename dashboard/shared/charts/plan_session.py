"""The time of a plan as bars: what a session and a week are spent on, against their limits."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, limit_line, new_figure, unit_of_seconds
from dashboard.shared.tables.plan_time import Estimate, Limit, TimePart, total
from schemas.formats import duration

_HEIGHT, _HEIGHT_OF_TWO = 150, 236
_SMALL = 0.25
"""Where the whole takes a smaller share of the picture, its parts get a picture of their own, or they were slivers."""
_NAMED = 0.15
"""A part of a smaller share is named by the legend alone: in a narrow window its name would have no room."""
_UPPER, _LOWER = (0.68, 1.0), (0.0, 0.24)
"""Where the parts and the limits stand, as shares of the height."""
_TOO_SMALL = 0.02
"""A share below this is reported, and its limit is not drawn: the bar could not be seen beside it."""


def session(found: Sequence[TimePart], within: Sequence[Limit], colours: Palette) -> go.Figure:
    """Return the parts as one bar, with the band of the whole and the limits that are near.

    Of a run that takes little of its session, the parts stand above, as large as they can be, the whole below them.
    """
    whole = total(found)
    drawn = [one for one in within if whole.high >= _TOO_SMALL * one.seconds]
    right = max([whole.high, *(one.seconds for one in drawn)])
    is_small = whole.likely < _SMALL * right
    figure = new_figure(colours, height=_HEIGHT_OF_TWO if is_small else _HEIGHT)
    divisor, unit = unit_of_seconds(right)
    if is_small:
        own_divisor, own_unit = unit_of_seconds(whole.likely)
        _add_parts(figure, found, own_divisor, colours)
        figure.update_xaxes(title_text=f"{own_unit}, by part", range=[0, whole.likely / own_divisor])
        figure.update_yaxes(visible=False, range=[-0.35, 0.35], domain=_UPPER)
        _add_whole(figure, whole, divisor, colours)
        figure.update_layout(
            xaxis2={"anchor": "y2"}, yaxis2={"visible": False, "range": [-0.6, 0.5], "domain": _LOWER, "anchor": "x2"}
        )
    else:
        _add_parts(figure, found, divisor, colours)
        figure.update_yaxes(visible=False, range=[-0.6, 0.5])
    panel = "2" if is_small else ""
    _add_band(figure, whole, divisor, colours, at=0 if is_small else -0.44, panel=panel)
    for one in drawn:
        words = f"{one.name} {duration(one.seconds).replace(' 00 min', '')}"
        limit_line(figure, colours, at=one.seconds / divisor, rows=(-0.6, 0.42), words=words, panel=panel)
    figure.update_layout({f"xaxis{panel}": {"title": {"text": unit}, "range": [0, 1.06 * right / divisor]}})
    return figure


def _add_parts(figure: go.Figure, found: Sequence[TimePart], divisor: float, colours: Palette) -> None:
    begin, whole = 0.0, sum(part.seconds.likely for part in found)
    for part in found:
        is_named = part.seconds.likely >= _NAMED * whole
        _add_part(figure, part, begin / divisor, divisor, colours, is_named=is_named)
        begin += part.seconds.likely


def _add_whole(figure: go.Figure, whole: Estimate, divisor: float, colours: Palette) -> None:
    """Draw the whole run as one bar, below its parts."""
    figure.add_bar(
        orientation="h",
        x=[whole.likely / divisor],
        y=[0],
        width=0.6,
        marker={"color": colours.times["train"]},
        hovertext=f"all together: {duration(whole.likely)}",
        hoverinfo="text",
        xaxis="x2",
        yaxis="y2",
    )


def _add_band(figure: go.Figure, whole: Estimate, divisor: float, colours: Palette, *, at: float, panel: str) -> None:
    figure.add_scatter(
        x=[whole.likely / divisor],
        y=[at],
        xaxis=f"x{panel}",
        yaxis=f"y{panel}",
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


def _add_part(
    figure: go.Figure, part: TimePart, begin: float, divisor: float, colours: Palette, *, is_named: bool
) -> None:
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
        text=[part.name if is_named else ""],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": colours.on(fill), "size": 12},
        hovertext=f"{part.name}: {duration(likely)} ({band})<br>{label(part.because)}",
        hoverinfo="text",
    )
