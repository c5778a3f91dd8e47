"""A scatter as Plotly draws it: a point for each run, mean and spread where several share a value, intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, new_figure
from dashboard.views.compare.logic.relation import Scale
from dashboard.views.compare.logic.scatter import Mean, Scatter, beside, means, spread_points

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down", "pentagon", "star", "cross")
"""Symbols of the groups; a hollow one is a run that contradicts itself."""
_HEIGHT, _TOP_PIXELS, _LEGEND_PIXELS = 470, 62, 20
_MOST_INTERVALS, _MOST_TICKS, _MOST_IN_LEGEND = 40, 8, 16
_FEW_DECADES, _LEAST_GAP = 2.0, 1 / 16

Interval = tuple[float | None, float | None]
"""Lower and upper end of a run's score; None: not stated."""


def draw(
    shown: Scatter, names: Sequence[str], tints: Sequence[str], colours: Palette, intervals: Sequence[Interval] = ()
) -> go.Figure:
    """Return the picture.

    Each group has a tint; intervals of scores are drawn where there are not too many.
    """
    picture = new_figure(colours, height=_HEIGHT)
    places, found = spread_points(shown), means(shown)
    drawn = sum(len(members) for _, members in shown.members)
    for group, (word, members) in enumerate(shown.members):
        runs, hollow = shown.sound(members), [index for index in members if index in shown.doubtful]
        points = {"x": [places[index] for index in runs], "y": [shown.y.places[index] for index in runs]}
        marker = {"size": 10, "color": tints[group], "symbol": symbol_of(group), "opacity": 0.45 if found else 0.8}
        bars = _bars(shown, runs, intervals) if len(intervals) and drawn <= _MOST_INTERVALS else {}
        in_legend = shown.groups is not None and group < _MOST_IN_LEGEND and bool(runs)
        title = {"name": label(shown.title_of(word)), "showlegend": in_legend}
        picture.add_trace(go.Scatter(**points, **title, **bars, **_chosen_style(shown, runs, names), marker=marker))
        points = {"x": [places[index] for index in hollow], "y": [shown.y.places[index] for index in hollow]}
        marker = {"size": 9, "color": colours.tones["quiet"], "symbol": f"{symbol_of(group)}-open"}
        is_first = bool(hollow) and not any(trace.showlegend and trace.name == _DOUBTFUL for trace in picture.data)
        picture.add_trace(
            go.Scatter(
                **points,
                **_chosen_style(shown, hollow, names),
                marker=marker,
                name=_DOUBTFUL,
                showlegend=is_first,
                legendrank=_LAST,
            )
        )
    _means(picture, shown, found, tints, colours)
    _axes(picture, shown, found, colours)
    return picture


def runs_at(points: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the numbers of the runs whose points are chosen, as `st.plotly_chart` states which are."""
    return sorted(int(point["customdata"][0]) for point in points if point.get("customdata"))


def symbol_of(number: int) -> str:
    """Return the symbol of a group: from the ninth on, when colours come again, each has another than before."""
    return SYMBOLS[(number + number // len(SYMBOLS)) % len(SYMBOLS)]


_DOUBTFUL, _LAST = "contradictory, in no mean", 2000


def _chosen_style(shown: Scatter, runs: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """Return labels and style of the points of runs when they are chosen."""
    across, up = shown.x, shown.y
    told = [
        f"<b>{label(names[index])}</b><br>{label(across.name)}: {label(str(across.shown(index)))}"
        f"<br>{label(up.name)}: {label(str(up.shown(index)))}"
        for index in runs
    ]
    return {
        "mode": "markers",
        "customdata": [[index] for index in runs],
        "hovertext": told,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "selected": {"marker": {"size": 15, "opacity": 1}},
        "unselected": {"marker": {"opacity": 0.2}},
    }


def _bars(shown: Scatter, runs: Sequence[int], intervals: Sequence[Interval]) -> dict[str, Any]:
    """Return the intervals of these runs as thin bars."""
    ends = [(shown.y.places[index] or 0.0, *intervals[index]) for index in runs]
    above = [0.0 if high is None else high - at for at, _, high in ends]
    below = [0.0 if low is None else at - low for at, low, _ in ends]
    return {"error_y": {"array": above, "arrayminus": below, "thickness": 1, "width": 0}}


def _means(picture: go.Figure, shown: Scatter, found: Sequence[Mean], tints: Sequence[str], colours: Palette) -> None:
    """Add a line at each mean with its spread; and above the picture how many runs it is of, where there is room."""
    for group in sorted({one.group for one in found}):
        own = [one for one in found if one.group == group]
        tint = colours.ink if shown.groups is None else tints[group]
        picture.add_trace(
            go.Scatter(
                x=[beside(shown, one.x, group) for one in own],
                y=[one.mean for one in own],
                error_y={"array": [one.spread for one in own], "thickness": 2.5, "width": 7, "color": tint},
                mode="markers",
                marker={"symbol": "line-ew-open", "size": 26, "color": tint, "line": {"width": 3.5, "color": tint}},
                hovertext=[f"mean {one.mean:.4g} ± {one.spread:.2g}, n = {one.n}" for one in own],
                hovertemplate="%{hovertext}<extra></extra>",
                showlegend=False,
            )
        )
    values = sorted({one.x for one in found})
    for x in values if len(values) <= _MOST_TICKS else ():
        counts = [one.n for one in found if one.x == x]
        at = math.log10(x) if shown.x.name in shown.logarithmic else x
        words = f"n = {' | '.join(map(str, counts))}"
        picture.add_annotation(x=at, y=1, yref="paper", yanchor="bottom", text=words, showarrow=False)


def _axes(picture: go.Figure, shown: Scatter, found: Sequence[Mean], colours: Palette) -> None:
    drawn = [index for _, members in shown.members for index in members]
    for scale, update in ((shown.x, picture.update_xaxes), (shown.y, picture.update_yaxes)):
        update(fixedrange=False, gridcolor=colours.line, title_text=label(scale.name))
        update(**_ticks(scale, drawn, is_log=scale.name in shown.logarithmic, across=scale is shown.x))
    legend = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 12}}
    said = f"{label(shown.y.name)} against {label(shown.x.name)}"
    title = {"text": said, "x": 0, "xref": "paper", "y": 0.99, "yanchor": "top", "font": {"size": 14}}
    rows = sum(bool(trace.showlegend) for trace in picture.data)
    picture.update_layout(title=title, margin_t=_TOP_PIXELS, height=_HEIGHT + _LEGEND_PIXELS * rows)
    picture.update_layout(legend=legend, showlegend=rows > 0, dragmode="zoom", clickmode="event+select")


def _ticks(scale: Scale, drawn: Sequence[int], *, is_log: bool, across: bool) -> dict[str, Any]:
    """Return the ticks of an axis: its words, the few values that there are, or powers of ten."""
    if scale.words:
        room = [-0.5, len(scale.words) - 0.5]
        return {"tickvals": list(range(len(scale.words))), "ticktext": list(map(label, scale.words)), "range": room}
    values = sorted({place for index in drawn if (place := scale.places[index]) is not None})
    at = [math.log10(value) if is_log else value for value in values]
    gaps = [after - before for before, after in itertools.pairwise(at)]
    has_room = len(values) <= _MOST_TICKS and all(gap >= _LEAST_GAP * (at[-1] - at[0]) for gap in gaps)
    if across and has_room:
        return {"type": "log" if is_log else "linear", "tickvals": values, "ticktext": [f"{one:g}" for one in values]}
    if not is_log:
        return {"type": "linear"}
    decades = math.log10(values[-1] / values[0])
    digits = (1,) if decades > _FEW_DECADES else (1, 2, 5)
    ends = math.floor(math.log10(values[0])), math.ceil(math.log10(values[-1]))
    ticks = [digit * 10.0**power for power in range(ends[0], ends[1] + 1) for digit in digits]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{one:g}" for one in ticks]}
