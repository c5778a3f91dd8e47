"""The figures of a smoke run beside those of the full run, in three bands: must agree, should scale, may differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, new_figure
from evidence.compare.smoke import SmokeFigure

_ROW_PIXELS, _EDGES_PIXELS = 40, 84
_APART = 0.14
"""How far a run's point is from the middle of its row, in rows."""
_LEGEND_PIXELS = 44
_LEAST = 1.6
"""The axis reaches at least so far from 1 on either side."""
_MARGIN = 1.35


def draw(figures: Sequence[SmokeFigure], colours: Palette) -> go.Figure:
    """Return the picture: each row is scaled to the full run's figure, the smoke run hollow, the planned band behind.

    What cannot be set in a ratio (a text, a zero) has no point unless it must agree; its values stand in its label.
    """
    places, heads = _places(figures)
    picture = new_figure(colours, height=_EDGES_PIXELS + _ROW_PIXELS * (len(places) + len(heads)))
    reach = [_LEAST, 1 / _LEAST]
    for name, hollow, offset in (("full run", False, -_APART), ("smoke run", True, _APART)):
        points = [(figure, x) for figure in figures if (x := _ratio(figure, is_smoke=hollow)) is not None]
        reach += [x for _, x in points]
        tints = [_tint(figure, colours) for figure, _ in points]
        picture.add_trace(
            go.Scatter(
                x=[x for _, x in points],
                y=[places[figure.name] + offset for figure, _ in points],
                mode="markers",
                name=name,
                cliponaxis=False,
                marker={
                    "size": 13,
                    "color": colours.paper if hollow else tints,
                    "line": {"color": tints, "width": 2.5},
                },
                hovertext=[label((figure.smoke if hollow else figure.full).text) for figure, _ in points],
                hovertemplate=f"{name}: %{{hovertext}}<extra></extra>",
                showlegend=True,
            )
        )
        for figure in figures:
            if (band := _planned_range(figure, is_smoke=hollow)) is not None:
                reach += band
                y = places[figure.name] + offset
                ends = {"x0": band[0], "x1": band[1], "y0": y - _APART, "y1": y + _APART}
                picture.add_shape(type="rect", **ends, fillcolor=colours.backs["poor"], line_width=0, layer="below")
    _axes(picture, figures, places, heads, colours, low=min(reach), high=max(reach))
    return picture


def describe(figures: Sequence[SmokeFigure]) -> str:
    """Return the picture in words, for who cannot see it."""
    return "; ".join(
        f"{figure.name} ({figure.band}): smoke {figure.smoke.text}, full {figure.full.text}{_mark(figure)}"
        for figure in figures
    )


def _places(figures: Sequence[SmokeFigure]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the rows of the figures and of the heads of their bands, from the lowest, 0."""
    names: list[tuple[bool, str]] = []
    for place, figure in enumerate(figures):
        if place == 0 or figures[place - 1].band != figure.band:
            names.append((True, figure.band))
        names.append((False, figure.name))
    rows = {name: len(names) - 1 - place for place, name in enumerate(names)}
    return {name: y for (is_head, name), y in rows.items() if not is_head}, {
        name: y for (is_head, name), y in rows.items() if is_head
    }


def _axes(
    picture: go.Figure,
    figures: Sequence[SmokeFigure],
    places: dict[str, int],
    heads: dict[str, int],
    colours: Palette,
    *,
    low: float,
    high: float,
) -> None:
    top = len(places) + len(heads) - 0.5
    line = {"color": colours.line, "width": 1}
    picture.add_shape(type="line", x0=1, x1=1, y0=-0.5, y1=top, line={**line, "dash": "dot"}, layer="below")
    for y in heads.values():
        picture.add_shape(type="line", xref="paper", x0=0, x1=1, y0=y + 0.5, y1=y + 0.5, line=line, layer="below")
    edges = [math.log10(low / _MARGIN), math.log10(high * _MARGIN)]
    is_wide = edges[1] - edges[0] > 1.5
    ticks = [digit * 10.0**power for power in range(-9, 10) for digit in ((1,) if is_wide else (1, 2, 5))]
    ticks = [one for one in ticks if edges[0] <= math.log10(one) <= edges[1]]
    picture.update_xaxes(type="log", range=edges, tickvals=ticks, ticktext=[f"{one:,.9g} ×" for one in ticks])
    shaded = "; shaded: planned" if any(figure.smoke.planned or figure.full.planned for figure in figures) else ""
    picture.update_xaxes(title_text=f"the full run's figure = 1 ×{shaded}")
    texts = {
        places[figure.name]: f"<b>{label(figure.name)}</b><br>"
        f"{label(figure.smoke.text)} | {label(figure.full.text)}{_mark(figure)}"
        for figure in figures
    } | {y: f"<b>{name.upper()}</b>" for name, y in heads.items()}
    picture.update_yaxes(tickvals=list(texts), ticktext=list(texts.values()), range=[-0.5, top])
    legend = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "font": {"size": 12}}
    picture.update_layout(legend=legend, showlegend=True, margin_t=_LEGEND_PIXELS)


def _ratio(figure: SmokeFigure, *, is_smoke: bool) -> float | None:
    """Return where a run's point is: 1 for the full run; None without one."""
    ours, theirs = figure.smoke.number, figure.full.number
    if ours is not None and theirs is not None and ours > 0 and theirs > 0:
        return ours / theirs if is_smoke else 1.0
    return 1.0 if figure.agrees else None


def _planned_range(figure: SmokeFigure, *, is_smoke: bool) -> tuple[float, float] | None:
    planned, whole = (figure.smoke if is_smoke else figure.full).planned, figure.full.number
    if planned is None or not whole or planned[0] <= 0:
        return None
    return planned[0] / whole, planned[1] / whole


def _tint(figure: SmokeFigure, colours: Palette) -> str:
    if figure.band == "must agree" and figure.agrees is not None:
        return colours.tones["good" if figure.agrees else "bad"]
    return colours.tones["fair" if figure.band == "should scale" else "quiet"]


def _mark(figure: SmokeFigure) -> str:
    if figure.remark:
        return f" ({figure.remark})"
    return "" if figure.agrees is None else " ✓" if figure.agrees else " ≠"
