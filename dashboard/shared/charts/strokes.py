"""How ECharts draws a line of the curves: its stroke, what stands at its end, marks; and the words of any drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dashboard.shared.charts.curves import Curve, CurveMark
from dashboard.shared.charts.line import Part

DIGITS = 7
"""Letters of a value at the end of a line."""
FILLED: dict[str, Any] = {"areaStyle": {"opacity": 0.2}}
_FONT = "Source Sans, sans-serif"
_STROKES: Mapping[Part, str] = {"earlier": "dashed", "evaluation": "dotted"}


def line(index: int, frame: int, column: str, curve: Curve, *, faint: bool) -> dict[str, Any]:
    """Return a curve as a series; a faint one is the measured line behind a smoothed one."""
    style = {"type": _STROKES.get(curve.part) or stroke(curve), "width": 1.6, "opacity": 1.0}
    if curve.is_faint:
        style |= {"width": 1, "opacity": 0.4}
    if faint or curve.part == "earlier":
        style |= {"width": 1.2 if curve.part == "earlier" else 1, "opacity": 0.35 if faint else 0.6}
    return {
        "type": "line",
        "name": curve.name,
        "xAxisIndex": index,
        "yAxisIndex": index,
        "datasetIndex": frame,
        "encode": {"x": "x", "y": column, "tooltip": [column]},
        "showSymbol": curve.part == "evaluation",
        "symbolSize": 5,
        "color": curve.colour,
        "lineStyle": style,
        "emphasis": {"disabled": True},
        "animation": False,
    }


def stroke(curve: Curve) -> str | list[int]:
    """Return the stroke of a run's own rows."""
    return list(curve.dashes) or "solid"


def end(name: str, values: np.ndarray) -> dict[str, Any]:
    """Return what stands at the end of a line: its name and its last value, or nothing if it is missing."""
    finite = np.asarray(values)[np.isfinite(values)]
    if not len(finite):
        return {}
    label = {"show": True, "formatter": f"{name}{finite[-1]:.4g}", "color": "inherit", "fontSize": 11}
    return {"endLabel": label | {"distance": 9, "lineHeight": 15}, "labelLayout": {"moveOverlap": "shiftY"}}


def mark_line(places: Sequence[CurveMark], *, worded: bool) -> dict[str, Any]:
    """Return lines across a panel where runs were resumed, with or without the words."""
    return {
        "silent": True,
        "symbol": "none",
        "lineStyle": {"type": "dotted", "width": 1.2, "opacity": 0.8},
        "animation": False,
        "data": [
            {
                "xAxis": place.x,
                "lineStyle": {"color": place.colour},
                "label": {
                    "show": worded,
                    "formatter": place.text,
                    "fontSize": 11,
                    "rotate": 0,
                    "position": "end",
                    "align": "left",
                },
            }
            for place in places
        ],
    }


def in_ink(option: dict[str, Any], ink: str) -> None:
    """Give the words of an ECharts option a colour that can be read, and a font that a saved SVG can name.

    The theme's font stands in quotes, which ECharts writes into an attribute as they are.
    """
    font = {"fontFamily": _FONT}
    axes = [option.get(name, []) for name in ("xAxis", "yAxis", "parallelAxis")]
    for axis in [one for found in axes for one in (found if isinstance(found, list) else [found])]:
        axis["axisLabel"] = axis.get("axisLabel", {"fontSize": 11}) | {"color": ink} | font
        axis["nameTextStyle"] = axis.get("nameTextStyle", {}) | {"color": ink} | font
    option["legend"] = option.get("legend", {"show": False}) | {"textStyle": {"color": ink} | font}
    option["textStyle"] = font
    for title in option.get("title", []):
        title["textStyle"] |= font
