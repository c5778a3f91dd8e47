"""The score of each group of items as a dot with its interval, the untrained model as a hollow one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, new_figure
from schemas.formats import percent, percent_range

_ROW_PIXELS, _EDGES_PIXELS = 30, 74
_TICKS = [0, 25, 50, 75, 100]
_BESIDE = 0.22
"""How far the untrained dot is below the trained one, in rows."""


@dataclass(frozen=True, kw_only=True)
class ItemScore:
    """The score of the items that share a value.

    Attributes:
        name: The value that they share.
        items: How many there are.
        value: Share of them that is right, from 0 to 1; so are the others.
        low: Lower end of the interval. None: not stated.
        high: Upper end.
        untrained: Share that was right before training. None: not stated.
    """

    name: str
    items: int
    value: float
    low: float | None
    high: float | None
    untrained: float | None


def draw(
    scores: Sequence[ItemScore], colours: Palette, *, overall: float | None, chosen: Sequence[str] = ()
) -> go.Figure:
    """Return the picture; a point's custom data is the name of its score.

    A dashed line is at `overall`, the score of all items; if some names are chosen, the others are pale.
    """
    picture = new_figure(colours, height=_EDGES_PIXELS + _ROW_PIXELS * len(scores))
    places = {score.name: len(scores) - 1 - place for place, score in enumerate(scores)}
    pale = [0.35 if chosen and score.name not in chosen else 1.0 for score in scores]
    before = [(score, score.untrained) for score in scores if score.untrained is not None]
    picture.add_trace(
        go.Scatter(
            x=[100 * value for _, value in before],
            y=[places[score.name] - _BESIDE for score, _ in before],
            mode="markers",
            name="untrained",
            customdata=[score.name for score, _ in before],
            cliponaxis=False,
            marker={"size": 10, "color": colours.paper, "line": {"color": colours.tones["quiet"], "width": 2}},
            hovertemplate="untrained: %{x:.1f} %<extra></extra>",
        )
    )
    picture.add_trace(
        go.Scatter(
            x=[100 * score.value for score in scores],
            y=[places[score.name] for score in scores],
            error_x={
                "array": [
                    100 * ((score.value if score.high is None else score.high) - score.value) for score in scores
                ],
                "arrayminus": [
                    100 * (score.value - (score.value if score.low is None else score.low)) for score in scores
                ],
                "color": colours.quiet,
                "thickness": 2,
                "width": 4,
            },
            mode="markers",
            name="this run, with 95 % interval",
            customdata=[score.name for score in scores],
            cliponaxis=False,
            marker={"size": 13, "color": colours.tones["fair"], "opacity": pale},
            hovertext=[percent_range(score.low, score.high) for score in scores],
            hovertemplate="%{x:.1f} % (%{hovertext})<extra></extra>",
        )
    )
    # A click filters the table; what it leaves is not for the picture to dim.
    picture.update_traces(selected={"marker": {"opacity": 1}}, unselected={"marker": {"opacity": 1}})
    if overall is not None:
        line = {"color": colours.quiet, "width": 1, "dash": "dash"}
        picture.add_shape(type="line", x0=100 * overall, x1=100 * overall, yref="paper", y0=0, y1=1, line=line)
    names = [f"{label(score.name)} <i>{score.items:,}</i>" for score in scores]
    picture.update_yaxes(tickvals=list(places.values()), ticktext=names, range=[-0.7, len(scores) - 0.4])
    picture.update_xaxes(range=[-2, 102], tickvals=_TICKS, ticktext=[f"{tick} %" for tick in _TICKS])
    return picture


def describe(scores: Sequence[ItemScore]) -> str:
    """Return the picture in words, for who cannot see it."""
    return "; ".join(
        f"{score.name}: {percent(score.value)} ({percent_range(score.low, score.high)}) of {score.items:,}"
        + ("" if score.untrained is None else f", untrained {percent(score.untrained)}")
        for score in scores
    )
