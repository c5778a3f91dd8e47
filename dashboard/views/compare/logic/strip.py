"""The differences in score on one axis: a dot with its interval for each run, zero, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, new_figure
from dashboard.shared.words.grades import Sign
from evidence.compare.scores import PairVerdict
from schemas import formats

WORDS: Mapping[str, Sign] = {
    "better": Sign(symbol="▲", tone="good", meaning="It scores higher, and chance is no likely reason (p < 0.05)."),
    "worse": Sign(symbol="▼", tone="bad", meaning="It scores lower, and chance is no likely reason (p < 0.05)."),
    "cannot tell": Sign(symbol="?", tone="quiet", meaning="Chance alone may make such a difference (p ≥ 0.05)."),
    "not compared": Sign(symbol="∅", tone="quiet", meaning="The scores are not of the same thing."),
}
"""How a verdict is written."""
_ROW_PIXELS, _EDGES_PIXELS, _TOP_PIXELS = 54, 106, 44
_WORDS_ABOVE, _BAND_BELOW, _BAND_ABOVE = 0.3, 0.4, 0.12
"""Within a row, as shares of its height: where its words are, and how far the band reaches from its dot."""
_MARGIN, _LEAST_POINTS = 1.12, 1.0


def height_of(rows: int) -> int:
    """Return the height of the picture of so many verdicts, in pixels."""
    return _EDGES_PIXELS + _ROW_PIXELS * rows


def draw(verdicts: Sequence[PairVerdict], colours: Palette, *, doubtful: Collection[str] = ()) -> go.Figure:
    """Return the picture of the verdicts that have a score, the first at the top; its axis is as long on both sides.

    Runs that contradict themselves (`doubtful`) have hollow grey dots.
    """
    scored = [(verdict, verdict.pair.score) for verdict in verdicts if verdict.pair.score is not None]
    picture = new_figure(colours, height=height_of(len(scored)))
    reach = _LEAST_POINTS
    for row, (verdict, found) in enumerate(scored):
        is_doubtful = not {verdict.pair.first, verdict.pair.second}.isdisjoint(doubtful)
        y, tint = -row, colours.tones["quiet" if is_doubtful else WORDS[verdict.word].tone]
        at, low, high = (100 * value for value in (found.difference, found.low, found.high))
        reach = max(reach, abs(low), abs(high))
        if found.detectable_difference is not None:
            unseen = 100 * found.detectable_difference
            reach = max(reach, unseen)
            ends = {"x0": -unseen, "x1": unseen, "y0": y - _BAND_BELOW, "y1": y + _BAND_ABOVE}
            picture.add_shape(type="rect", **ends, fillcolor=colours.backs["poor"], line_width=0, layer="below")
        picture.add_trace(
            go.Scatter(
                x=[at],
                y=[y - (_BAND_BELOW - _BAND_ABOVE) / 2],
                error_x={"array": [high - at], "arrayminus": [at - low], "thickness": 2, "width": 5, "color": tint},
                mode="markers",
                marker={
                    "size": 13,
                    "color": tint,
                    "symbol": "circle-open" if is_doubtful else "circle",
                    "line_width": 2.5,
                },
                hovertext=[f"{label(verdict.pair.second)}: {formats.points(found.difference)}"],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
        said = f"<b>{label(verdict.pair.second)}</b>  {WORDS[verdict.word].symbol} {verdict.word}"
        said += ", if its files are believed" if is_doubtful else ""
        place = {"xref": "paper", "x": 0, "xanchor": "left", "y": y + _WORDS_ABOVE}
        font = {"color": colours.ink, "size": 13}
        picture.add_annotation(text=said, showarrow=False, font=font, bgcolor=colours.paper, **place)
    _axes(picture, scored[0][0] if scored else None, colours, rows=len(scored), reach=reach * _MARGIN)
    return picture


def describe(verdicts: Sequence[PairVerdict]) -> str:
    """Return the picture in words, for who cannot see it."""
    return "Difference in exact match, with its 95 % interval. " + "; ".join(
        f"{verdict.pair.second} against {verdict.pair.first}: {formats.points(found.difference)} "
        f"({formats.points(found.low)} to {formats.points(found.high)}), {verdict.word}"
        for verdict in verdicts
        if (found := verdict.pair.score) is not None
    )


def _axes(picture: go.Figure, first: PairVerdict | None, colours: Palette, *, rows: int, reach: float) -> None:
    if first is None or first.pair.score is None:
        return
    top, bottom = 0.5, 0.5 - rows
    zero = {"color": colours.ink, "width": 1.5}
    picture.add_shape(type="line", x0=0, x1=0, y0=bottom, y1=top, line=zero, layer="below")
    items = first.pair.score.table.items
    picture.update_xaxes(
        range=[-reach, reach], title_text=f"points of exact match; shaded: {items:,} items cannot show it"
    )
    picture.update_yaxes(range=[bottom, top], visible=False)
    title = {"text": f"Difference from {label(first.pair.first)}", "x": 0, "xanchor": "left", "font": {"size": 14}}
    picture.update_layout(title=title | {"xref": "paper", "y": 0.99, "yanchor": "top"}, margin_t=_TOP_PIXELS)
