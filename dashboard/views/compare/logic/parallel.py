"""Parallel coordinates as an ECharts drawing: an axis for each name, a line through them for each run.

ECharts draws them on a canvas; Plotly's need WebGL, which is slow without a graphics card.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dashboard.shared.charts.strokes import in_ink
from dashboard.shared.words.text import shorten
from dashboard.views.compare.logic.relation import Scale

HEIGHT = 446
_LONGEST = 26


def drawing(
    scales: Sequence[Scale], *, colour: str, chosen_colour: str, chosen: Collection[int], words: str
) -> dict[str, Any]:
    """Return the drawing.

    Args:
        scales: The axes from left to right, all of the same runs.
        colour: Colour of the lines.
        chosen_colour: Colour of the lines of chosen runs.
        words: Colour of the words beside it.
        chosen: Numbers of the chosen runs; their lines are drawn thick, on top of the others.
    """
    runs = range(len(scales[0].places))
    quiet = [index for index in runs if index not in chosen]
    # Hundreds of lines over each other are a blot unless each is faint.
    opacity = min(0.75, max(0.05, 100 / max(1, len(quiet))))
    option = {
        "animation": False,
        "parallel": {
            "left": 70,
            "right": 90,
            "top": 72,
            "bottom": 30,
            "parallelAxisDefault": {"areaSelectStyle": {"width": 18, "opacity": 0.25}},
        },
        "parallelAxis": [_axis(index, scale) for index, scale in enumerate(scales)],
        "toolbox": {
            "right": 8,
            "top": -4,
            "itemSize": 13,
            "feature": {"restore": {}, "saveAsImage": {"name": "parallel", "pixelRatio": 2}},
        },
        "series": [
            _lines(scales, quiet, {"color": colour, "width": 1.1, "opacity": opacity * 0.7 if chosen else opacity}),
            _lines(scales, sorted(chosen), {"color": chosen_colour, "width": 2.6, "opacity": 1}),
        ],
    }
    in_ink(option, words)
    return option


def _axis(index: int, scale: Scale) -> dict[str, Any]:
    name = shorten(scale.name, _LONGEST) + (", log" if scale.is_wide else "")
    # Names take turns in height, so that long ones do not run into each other.
    axis: dict[str, Any] = {"dim": index, "name": name, "nameGap": 12 + 16 * (index % 2)}
    if scale.words:
        return axis | {"type": "category", "data": [shorten(word, _LONGEST) for word in scale.words]}
    return axis | {"type": "log" if scale.is_wide else "value", "scale": True}


def _lines(scales: Sequence[Scale], runs: Sequence[int], style: dict[str, Any]) -> dict[str, Any]:
    # A place that a run does not state is a gap in its line.
    data = [["-" if scale.places[index] is None else scale.places[index] for scale in scales] for index in runs]
    return {"type": "parallel", "data": data, "lineStyle": style, "smooth": 0, "animation": False, "progressive": 500}
