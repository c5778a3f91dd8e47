"""The curves as one ECharts drawing: panels above each other, one cursor through all.

The drawing is data, so that tests can read it. What it shows was decided in `curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboard.shared.charts.curves import Curve, Place, Plot, Plotted
from dashboard.shared.charts.line import PARTS, Part
from dashboard.shared.charts.panels import Panel
from dashboard.shared.tables import arrow

_LEFT, _LABEL_END, _DIGIT = 62, 14, 6.2
"""Pixels: where panels begin, from a label's end to its panel, and a digit of a label."""
_TOP, _BELOW_TOOLS, _LEGEND, _GAP, _BOTTOM = 58, 27, 24, 40, 44
_STROKES: Mapping[Part, str] = {"earlier": "dashed", "evaluation": "dotted"}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """An ECharts option and its height in pixels."""

    option: dict[str, Any]
    height: int


def drawing(plot: Plot, *, ink: str = "") -> Drawing:
    """Return a plot as ECharts takes it; ink is the colour of the words beside it, and those of the theme are pale."""
    builder = _Builder(single=plot.single, left=_left(plot))
    for index, plotted in enumerate(plot.panels):
        builder.add(index, plotted)
    drawn = builder.drawing(plot)
    in_ink(drawn.option, ink)
    return drawn


def in_ink(option: dict[str, Any], ink: str) -> None:
    """Give the labels of axes and the legend of an ECharts option a colour that can be read."""
    axes = [option.get(name, []) for name in ("xAxis", "yAxis", "parallelAxis")]
    for axis in [one for found in axes for one in (found if isinstance(found, list) else [found])]:
        axis["axisLabel"] = axis.get("axisLabel", {"fontSize": 11}) | {"color": ink}
        axis["nameTextStyle"] = axis.get("nameTextStyle", {}) | {"color": ink}
    option["legend"] = option.get("legend", {"show": False}) | {"textStyle": {"color": ink}}


@dataclass(kw_only=True)
class _Builder:
    """Collects the parts of one drawing."""

    single: bool
    left: int

    def __post_init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.series: list[dict[str, Any]] = []
        self.titles: list[dict[str, Any]] = []
        self.grids: list[dict[str, Any]] = []
        self.y_axes: list[dict[str, Any]] = []
        # Tools and legend have a row of their own each: on a phone the title needs all of its row.
        self.top = _TOP if self.single else _TOP + _LEGEND
        self._frame_of_x: dict[tuple[int, str], int] = {}

    def add(self, index: int, plotted: Plotted) -> None:
        """Add a panel with its curves and marks."""
        panel = plotted.panel
        self.titles.append(
            {"text": plotted.title, "left": 0, "top": self.top - 26, "textStyle": {"fontSize": 12.5, "fontWeight": 600}}
        )
        # All panels begin at one place, whatever their labels, so that one cursor goes straight through all of them.
        grid = {"left": self.left, "right": 18, "top": self.top, "height": panel.height}
        self.grids.append(grid | {"outerBoundsMode": "none"})
        axis: dict[str, Any] = {
            "type": "log" if plotted.log else "value",
            "gridIndex": index,
            "scale": True,
            "splitNumber": 4 if panel.height > 150 else 2,
            "axisLabel": {"fontSize": 11},
        }
        if plotted.low is not None and plotted.high is not None:
            axis |= {"min": _rounded(plotted.low), "max": _rounded(plotted.high)}
            axis["axisLabel"] |= {"showMinLabel": False, "showMaxLabel": False}
        self.y_axes.append(axis)
        for curve in plotted.curves:
            self._add_curve(index, panel.title, curve)
        for place in plotted.scores:
            self._add_score(index, place)
        if plotted.resumed and plotted.curves:
            # Only the first panel says what the line means; the line itself goes through all of them.
            self.series[-1 - len(plotted.scores)]["markLine"] = _mark_line(plotted.resumed, worded=index == 0)
        self.top += panel.height + _GAP

    def _add_curve(self, index: int, title: str, curve: Curve) -> None:
        label = title if self.single else curve.name
        label += f", {said}" if (said := PARTS[curve.part]) else ""
        frame = self._frame(curve, title)
        columns = {label: curve.y}
        if curve.smooth is not None:
            columns[f"{label}, smoothed"] = curve.smooth
        for name, values in columns.items():
            # Runs of one name or panels of one frame never meet in a column.
            column = name if name not in self.frames[frame] else f"{name} ({title})"
            self.frames[frame][column] = values
            faint = curve.smooth is not None and values is curve.y
            self.series.append(_line(index, frame, column, curve, faint=faint))

    def _frame(self, curve: Curve, title: str) -> int:
        """Return the number of the table that has this x; curves that keep every point share one."""
        key = (id(curve.x), "" if self.single else title)
        if key not in self._frame_of_x:
            self._frame_of_x[key] = len(self.frames)
            self.frames.append({"x": curve.x})
        return self._frame_of_x[key]

    def _add_score(self, index: int, place: Place) -> None:
        label = f"{place.text}, %"
        self.frames.append({"x": [place.x], "y": [place.y], label: [round(100 * (place.score or 0.0), 2)]})
        self.series.append(
            {
                "type": "scatter",
                "name": place.name,
                "xAxisIndex": index,
                "yAxisIndex": index,
                "datasetIndex": len(self.frames) - 1,
                "encode": {"x": "x", "y": "y", "tooltip": [label]},
                "symbol": "diamond",
                "symbolSize": 13,
                "color": place.colour,
                # Beside the values of the curves a percentage would be taken for one of them.
                "tooltip": {"trigger": "item"},
                "z": 5,
                "animation": False,
            }
        )

    def drawing(self, plot: Plot) -> Drawing:
        """Return what was collected as one drawing."""
        indices = list(range(len(plot.panels)))
        last = len(plot.panels) - 1
        option = {
            "animation": False,
            "dataset": [{"source": _source(frame)} for frame in self.frames],
            "title": self.titles,
            "grid": self.grids,
            "xAxis": [
                _x_axis(index, plotted.panel, plot, shown=index == last) for index, plotted in enumerate(plot.panels)
            ],
            "yAxis": self.y_axes,
            "series": self.series,
            "axisPointer": {"link": [{"xAxisIndex": "all"}]},
            "legend": {
                "show": not self.single,
                "data": _legend(plot),
                "type": "scroll",
                "left": 0,
                "right": 8,
                "top": _BELOW_TOOLS,
                "itemWidth": 28,
                # What is higher than an item is cut off where there is more than a row of them.
                "itemHeight": 14,
            },
            # Its panels are listed upside down, the one that is pointed at last; the style of this class turns them.
            "tooltip": {"trigger": "axis", "valueFormatter": "%.5g", "confine": True, "className": "tp-pointed-at"},
            "dataZoom": [{"type": "inside", "xAxisIndex": indices, "zoomOnMouseWheel": "ctrl"}],
            "toolbox": {
                "right": 8,
                "top": -4,
                "itemSize": 13,
                "feature": {
                    "dataZoom": {"xAxisIndex": indices, "yAxisIndex": "none"},
                    "restore": {},
                    "saveAsImage": {"name": "curves", "pixelRatio": 2},
                },
            },
        }
        return Drawing(option=option, height=self.top - _GAP + _BOTTOM)


def _left(plot: Plot) -> int:
    """Return where the panels begin, in pixels: behind the longest label of any of them, `2,500,000,000`."""
    ends = [abs(end) for plotted in plot.panels for end in (plotted.low, plotted.high) if end is not None]
    values = [np.abs(curve.y) for plotted in plot.panels if plotted.high is None for curve in plotted.curves]
    largest = max([0.0, *ends, *(float(np.max(each[np.isfinite(each)], initial=0.0)) for each in values)])
    return max(_LEFT, round(_LABEL_END + _DIGIT * len(f"{largest:,.0f}")))


def _line(index: int, frame: int, column: str, curve: Curve, *, faint: bool) -> dict[str, Any]:
    style = {"type": _STROKES.get(curve.part) or _stroke(curve), "width": 1.6, "opacity": 1.0}
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


def _stroke(curve: Curve) -> str | list[int]:
    return list(curve.dashes) or "solid"


def _legend(plot: Plot) -> list[dict[str, Any]]:
    """Return each run once with the stroke of its own rows, whatever of it is drawn first."""
    runs = {curve.name: curve for plotted in plot.panels for curve in plotted.curves}
    return [
        {"name": name, "lineStyle": {"color": curve.colour, "type": _stroke(curve), "width": 2, "opacity": 1}}
        # Its circle would hide the stroke.
        | {"itemStyle": {"opacity": 0}}
        for name, curve in runs.items()
    ]


def _mark_line(places: Sequence[Place], *, worded: bool) -> dict[str, Any]:
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


def _x_axis(index: int, panel: Panel, plot: Plot, *, shown: bool) -> dict[str, Any]:
    """Return the axis below a panel; the words of its cursor stand above the panel's values in the tooltip."""
    whole = plot.x_title == "steps"
    # The first and the last value have all their digits; only steps have few.
    ends = {} if whole else {"showMinLabel": False, "showMaxLabel": False}
    words = {"show": False, "precision": 0 if whole else 2, "formatter": f"{panel.title} at {{value}} {plot.x_title}"}
    return {
        "type": "log" if plot.log_x else "value",
        # No tick lies between two steps.
        "minInterval": 1 if whole else 0,
        "gridIndex": index,
        "min": "dataMin",
        "max": "dataMax",
        "name": plot.x_title if shown else "",
        "nameLocation": "middle",
        "nameGap": 26,
        "axisLabel": {"show": shown, "fontSize": 11} | ends,
        "axisTick": {"show": shown},
        "splitLine": {"show": False},
        "axisPointer": {"label": words},
    }


def _source(frame: Mapping[str, Any]) -> pa.Table:
    return arrow.table({name: arrow.numbers(np.asarray(values)) for name, values in frame.items()})


def _rounded(value: float) -> float:
    """Return an end of an axis with the few digits that its label needs."""
    return float(f"{value:.3g}")
