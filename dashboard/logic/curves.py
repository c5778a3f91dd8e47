"""The curves of one or more runs as one ECharts drawing: panels above each other, one x axis, one cursor through all.

What lives here: which points, panels, scales and names; the drawing is data, so that tests can read it. Long series are
thinned here (`sampling`), and the drawing says of how many points it shows how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from dashboard.logic.numbers import count
from dashboard.logic.sampling import POINTS, kept, smoothed
from dashboard.logic.series import Series

Axis = Literal["step", "tokens_seen", "seconds"]

AXES: dict[Axis, str] = {"step": "Steps", "tokens_seen": "Tokens", "seconds": "Time"}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One curve: the column it draws, its title with the unit, and the most that its unit can be scaled by."""

    column: str
    title: str
    height: int = 96


PANELS = (
    Panel(column="loss", title="Loss (nats per supervised token)", height=210),
    Panel(column="learning_rate", title="Learning rate"),
    Panel(column="grad_norm", title="Gradient norm, before clipping"),
    Panel(column="tokens_per_second", title="Tokens per second"),
    Panel(column="device_memory_bytes", title="Device memory"),
)

_TOP, _LEGEND, _GAP, _BOTTOM = 34, 26, 40, 44
_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "tokens_seen": ((1e9, "billion tokens"), (1e6, "million tokens"), (1e3, "thousand tokens"), (1, "tokens")),
    "seconds": ((7200, "hours"), (120, "minutes"), (1, "seconds")),
    "device_memory_bytes": ((2**30, "GiB"), (2**20, "MiB"), (1, "bytes")),
}
_DIVISORS = {"hours": 3600.0, "minutes": 60.0}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A run to draw: its name, its series, and its colour."""

    name: str
    series: Series
    colour: str


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """An ECharts option, its height in pixels, and how many points of how many it shows."""

    option: dict[str, Any]
    height: int
    drawn: int
    total: int

    @property
    def remark(self) -> str:
        """What a reader must know about thinned curves; empty if every point is drawn."""
        if self.drawn == self.total:
            return ""
        return f"{count(self.drawn)} of {count(self.total)} points drawn; the extremes of each stretch are kept."


def drawing(lines: Sequence[Line], *, x: Axis, log: bool, smoothing: float, points: int = POINTS) -> Drawing:
    """Return the curves of these runs, panel by panel; a panel that no run has values for is left out.

    Args:
        lines: The runs; panels and colours keep their order.
        x: What runs along the bottom.
        log: Whether loss and gradient norm are on a logarithmic scale; values that are not positive are then left out.
        smoothing: Weight of the moving average, 0 for none; the raw line stays visible behind it.
        points: Points drawn at most for a curve.
    """
    panels = [panel for panel in PANELS if any(line.series.has(panel.column) for line in lines)]
    x_divisor, x_unit = _scale(x, [line.series.columns[x] for line in lines])
    builder = _Builder(x=x, x_divisor=x_divisor, log=log, smoothing=smoothing, points=points, single=len(lines) == 1)
    for index, panel in enumerate(panels):
        builder.add(index, panel, lines)
    return builder.drawing(panels, x_unit)


@dataclass(kw_only=True)
class _Builder:
    """Collects the parts of one drawing."""

    x: Axis
    x_divisor: float
    log: bool
    smoothing: float
    points: int
    single: bool

    def __post_init__(self) -> None:
        self.datasets: list[dict[str, Any]] = []
        self.series: list[dict[str, Any]] = []
        self.titles: list[dict[str, Any]] = []
        self.grids: list[dict[str, Any]] = []
        self.y_axes: list[dict[str, Any]] = []
        self.top = _TOP if self.single else _TOP + _LEGEND
        self.drawn = 0
        self.total = 0

    def add(self, index: int, panel: Panel, lines: Sequence[Line]) -> None:
        """Add a panel with the curve of each run that has one."""
        divisor, unit = _scale(panel.column, [line.series.columns[panel.column] for line in lines])
        title = panel.title + (f" ({unit})" if unit else "")
        on_log = self.log and panel.column in {"loss", "grad_norm"}
        self.titles.append(
            {"text": title, "left": 0, "top": self.top - 26, "textStyle": {"fontSize": 12.5, "fontWeight": 600}}
        )
        self.grids.append({"left": 62, "right": 18, "top": self.top, "height": panel.height})
        self.y_axes.append(
            {
                "type": "log" if on_log else "value",
                "gridIndex": index,
                "scale": True,
                "splitNumber": 4 if panel.height > 150 else 2,
                "axisLabel": {"fontSize": 11},
            }
        )
        for line in lines:
            if line.series.has(panel.column):
                self._add_curve(index, panel.column, title, divisor, line, positive=on_log)
        self.top += panel.height + _GAP

    def _add_curve(self, index: int, column: str, title: str, divisor: float, line: Line, *, positive: bool) -> None:
        # Four bytes hold more digits than a screen shows, and drop the last-digit noise of a constant.
        values = (line.series.columns[column] / divisor).astype(np.float32)
        if positive:
            values = np.where(values > 0, values, np.nan)
        chosen = kept(values, self.points)
        self.drawn += len(chosen)
        self.total += len(values)
        label = title.partition(" (")[0] if self.single else line.name
        frame = {"x": line.series.columns[self.x][chosen] / self.x_divisor, label: values[chosen]}
        smooth = self.smoothing > 0 and column != "learning_rate"
        if smooth:
            frame[f"{label}, smoothed"] = smoothed(values, self.smoothing)[chosen].astype(np.float32)
        self.datasets.append({"source": pd.DataFrame(frame)})
        for name in list(frame)[1:]:
            self.series.append(self._curve(index, name, line, faint=smooth and name == label))

    def _curve(self, index: int, name: str, line: Line, *, faint: bool) -> dict[str, Any]:
        return {
            "type": "line",
            "name": line.name,
            "xAxisIndex": index,
            "yAxisIndex": index,
            "datasetIndex": len(self.datasets) - 1,
            "encode": {"x": "x", "y": name, "tooltip": [name]},
            "showSymbol": False,
            "symbolSize": 5,
            "color": line.colour,
            "lineStyle": {"width": 1 if faint else 1.6, "opacity": 0.35 if faint else 1},
            "emphasis": {"disabled": True},
            "animation": False,
        }

    def drawing(self, panels: Sequence[Panel], x_unit: str) -> Drawing:
        """Return what was collected as one drawing."""
        indices = list(range(len(panels)))
        last = len(panels) - 1
        option = {
            "animation": False,
            "dataset": self.datasets,
            "title": self.titles,
            "grid": self.grids,
            "xAxis": [_x_axis(index, x_unit if index == last else "", shown=index == last) for index in indices],
            "yAxis": self.y_axes,
            "series": self.series,
            "axisPointer": {"link": [{"xAxisIndex": "all"}]},
            "legend": {
                "show": not self.single,
                "type": "scroll",
                "left": 0,
                "right": 130,
                "top": 0,
                "itemWidth": 16,
                "itemHeight": 8,
            },
            "tooltip": {"trigger": "axis", "valueFormatter": "%.5g", "confine": True},
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
        return Drawing(option=option, height=self.top - _GAP + _BOTTOM, drawn=self.drawn, total=self.total)


def _x_axis(index: int, name: str, *, shown: bool) -> dict[str, Any]:
    return {
        "type": "value",
        "gridIndex": index,
        "min": "dataMin",
        "max": "dataMax",
        "name": name,
        "nameLocation": "middle",
        "nameGap": 26,
        "axisLabel": {"show": shown, "fontSize": 11},
        "axisTick": {"show": shown},
        "splitLine": {"show": False},
        "axisPointer": {"label": {"show": shown}},
    }


def _scale(column: str, arrays: Sequence[np.ndarray]) -> tuple[float, str]:
    """Return the divisor and the unit in which the largest value of these columns reads well."""
    if column == "step":
        return 1.0, "steps"
    largest = max((float(np.nanmax(array)) for array in arrays if np.isfinite(array).any()), default=0.0)
    for threshold, unit in _SCALES.get(column, ()):
        if largest >= threshold or threshold == 1:
            return _DIVISORS.get(unit, float(threshold)), unit
    return 1.0, ""
