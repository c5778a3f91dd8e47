"""The curves as one ECharts drawing: panels above each other, one cursor through all.

The drawing is data, so that tests can read it. What it shows was decided in `curves`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboard.shared.charts import strokes
from dashboard.shared.charts.bands import MeanBand
from dashboard.shared.charts.curves import Curve, CurveMark, Plot, PlottedPanel
from dashboard.shared.charts.line import PARTS
from dashboard.shared.charts.panels import Panel
from dashboard.shared.charts.widths import other_widths
from dashboard.shared.words.text import shorten

_LEFT, _LABEL_END, _DIGIT = 62, 14, 6.2
"""Pixels: where panels begin, from a label's end to its panel, and a digit of a label."""
_TOP, _BELOW_TOOLS, _LEGEND, _GAP, _BOTTOM = 58, 27, 24, 40, 44
_RIGHT, _ENDS, _MOST_ENDS, _LONGEST_END, _LETTER = 18, 12, 8, 18, 6.4
"""Pixels beside the panels, beside words at ends of lines; of how many lines, how long; pixels of a letter."""
_LONGEST_TITLE, _TITLE_PIXELS = 60, 235


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """An ECharts option and its height in pixels."""

    option: dict[str, Any]
    height: int


def drawing(plot: Plot, *, ink: str = "", paper: str = "", title: str = "") -> Drawing:
    """Return a plot as ECharts takes it.

    Its ground is `paper`, empty for the page's; `title` is also in the pictures that are saved of it.
    """
    builder = _Builder(single=plot.single, left=_left(plot), names=_named_at_ends(plot))
    for index, plotted in enumerate(plot.panels):
        builder.add(index, plotted)
    drawn = builder.drawing(plot)
    drawn.option["media"] = other_widths(drawn.option, builder.titles, drawn.height - _BOTTOM, gap=_GAP, narrow=_RIGHT)
    drawn.option["title"] = [*builder.titles, _whole_title(title)] if title else builder.titles
    if paper:
        drawn.option["backgroundColor"] = paper
        for one in drawn.option["title"]:
            one["textStyle"]["color"] = ink
    strokes.in_ink(drawn.option, ink)
    return drawn


def _whole_title(title: str) -> dict[str, Any]:
    cut = {"fontSize": 12.5, "fontWeight": 400, "width": _TITLE_PIXELS, "overflow": "truncate"}
    return {"text": shorten(title, _LONGEST_TITLE), "left": 0, "top": 2, "padding": 2, "textStyle": cut}


def _named_at_ends(plot: Plot) -> dict[str, str]:
    """Return what each line is called at its end: its name where there are several, none where they are too many."""
    runs = {curve.name for panel in plot.panels for curve in panel.curves if not curve.is_faint}
    every = [*sorted(runs), *plot.bands]
    if len(every) > _MOST_ENDS:
        return {}
    return {name: "" if plot.single else f"{shorten(name, _LONGEST_END)} " for name in every}


@dataclass(kw_only=True)
class _Builder:
    """Collects the parts of one drawing."""

    single: bool
    left: int
    names: Mapping[str, str]

    def __post_init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.series: list[dict[str, Any]] = []
        self.titles: list[dict[str, Any]] = []
        self.grids: list[dict[str, Any]] = []
        self.y_axes: list[dict[str, Any]] = []
        # Tools and legend have a row of their own each: on a phone the title needs all of its row.
        self.top = _TOP if self.single else _TOP + _LEGEND
        longest = max((len(name) + strokes.DIGITS for name in self.names.values()), default=0)
        self.right = round(_ENDS + _LETTER * longest) if longest else _RIGHT
        self._frame_of_x: dict[tuple[int, str], int] = {}

    def add(self, index: int, plotted: PlottedPanel) -> None:
        """Add a panel with its curves and marks."""
        panel = plotted.panel
        self.titles.append(
            {"text": plotted.title, "left": 0, "top": self.top - 26, "textStyle": {"fontSize": 12.5, "fontWeight": 600}}
        )
        # All panels begin at one place, whatever their labels, so that one cursor goes straight through all of them.
        grid = {"left": self.left, "right": self.right, "top": self.top, "height": panel.height}
        self.grids.append(grid | {"outerBoundsMode": "none"})
        axis: dict[str, Any] = {
            "type": "log" if plotted.log else "value",
            "gridIndex": index,
            "scale": True,
            "splitNumber": 4 if panel.height > 150 else 2,
            "axisLabel": {"fontSize": 11},
        }
        if plotted.low is not None and plotted.high is not None:
            axis |= {"min": _round(plotted.low), "max": _round(plotted.high)}
            axis["axisLabel"] |= {"showMinLabel": False, "showMaxLabel": False}
        self.y_axes.append(axis)
        for band in plotted.bands:
            self._add_band(index, band)
        for curve in plotted.curves:
            self._add_curve(index, panel.title, curve)
        for place in plotted.scores:
            self._add_score(index, place)
        if plotted.resumed and plotted.curves:
            # Only the first panel states what the line means; the line itself goes through all of them.
            self.series[-1 - len(plotted.scores)]["markLine"] = strokes.mark_line(plotted.resumed, worded=index == 0)
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
            self.series.append(strokes.line(index, frame, column, curve, faint=faint))
            if not faint and curve.part == "own" and not curve.is_faint and curve.name in self.names:
                self.series[-1] |= strokes.end(self.names[curve.name], values)

    def _add_band(self, index: int, band: MeanBand) -> None:
        """Add the mean over seeds, and the band of its spread: one line upon another, the room between them filled."""
        self.frames.append({"x": band.x, "low": band.low, "spread": band.high - band.low, band.name: band.mean})
        shared = {"type": "line", "xAxisIndex": index, "yAxisIndex": index, "datasetIndex": len(self.frames) - 1}
        shared |= {"name": band.name, "color": band.colour, "showSymbol": False, "animation": False}
        bare = {"stack": f"{band.name} {index}", "stackStrategy": "all", "lineStyle": {"opacity": 0}, "silent": True}
        hidden = {"encode": {"x": "x", "y": "low", "tooltip": []}, "tooltip": {"show": False}}
        self.series.append(shared | bare | hidden)
        self.series.append(
            shared | bare | hidden | {"encode": {"x": "x", "y": "spread", "tooltip": []}} | strokes.FILLED
        )
        mean = {"encode": {"x": "x", "y": band.name, "tooltip": [band.name]}, "lineStyle": {"width": 2.4}, "z": 4}
        self.series.append(
            shared | mean | (strokes.end(self.names[band.name], band.mean) if band.name in self.names else {})
        )

    def _frame(self, curve: Curve, title: str) -> int:
        """Return the number of the table that has this x; curves that keep every point share one."""
        key = (id(curve.x), "" if self.single else title)
        if key not in self._frame_of_x:
            self._frame_of_x[key] = len(self.frames)
            self.frames.append({"x": curve.x})
        return self._frame_of_x[key]

    def _add_score(self, index: int, place: CurveMark) -> None:
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
            "dataset": [
                {
                    "source": pa.table(
                        {name: pa.array(np.asarray(values), from_pandas=True) for name, values in frame.items()}
                    )
                }
                for frame in self.frames
            ],
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
        height = self.top - _GAP + _BOTTOM
        return Drawing(option=option, height=height)


def _left(plot: Plot) -> int:
    """Return where the panels begin, in pixels: behind the longest label of any of them, `2,500,000,000`."""
    ends = [abs(end) for plotted in plot.panels for end in (plotted.low, plotted.high) if end is not None]
    values = [np.abs(curve.y) for plotted in plot.panels if plotted.high is None for curve in plotted.curves]
    largest = max([0.0, *ends, *(float(np.max(each[np.isfinite(each)], initial=0.0)) for each in values)])
    return max(_LEFT, round(_LABEL_END + _DIGIT * len(f"{largest:,.0f}")))


def _legend(plot: Plot) -> list[dict[str, Any]]:
    """Return each run once with the stroke of its own rows, whatever of it is drawn first."""
    runs = {curve.name: curve for plotted in plot.panels for curve in plotted.curves}
    return [
        {"name": name, "lineStyle": {"color": curve.colour, "type": strokes.stroke(curve), "width": 2, "opacity": 1}}
        # Its circle would hide the stroke.
        | {"itemStyle": {"opacity": 0}}
        for name, curve in runs.items()
    ] + [
        {
            "name": name,
            "lineStyle": {"color": band.colour, "type": "solid", "width": 4, "opacity": 1},
            "itemStyle": {"opacity": 0},
        }
        for name, band in plot.bands.items()
    ]


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


def _round(value: float) -> float:
    """Return an end of an axis with the few digits that its label needs."""
    return float(f"{value:.3g}")
