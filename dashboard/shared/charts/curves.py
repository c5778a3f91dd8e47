"""Which curves are drawn, of one or more runs: panels above each other, one x axis, values in units that read well.

What lives here: which points, panels, ranges and marks. What does not: how they are drawn (`curves_echarts` for the
page, `curves_svg` for print). Long series are thinned here (`sampling`), and the plot says how many points of how many
it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dashboard.shared.charts import value_range
from dashboard.shared.charts.line import Axis, Line, Part
from dashboard.shared.charts.sampling import POINTS, kept, smoothed
from dashboard.shared.reading.series import Series
from dashboard.shared.words.numbers import count
from dashboard.shared.words.text import shortened

AXES: dict[Axis, str] = {"step": "Steps", "tokens_seen": "Tokens", "seconds": "Time"}

_LONGEST_NAMES = 60
"""Characters that a title gives to what the marks in it are."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One curve. Together the panels send less than 200 kB to a browser: 8 bytes a point, 12 when smoothed.

    Attributes:
        column: The column that it draws.
        title: What that is.
        exactly: What it is in our own rows; of those of other tools nobody here knows it.
        height: Pixels.
        points: Points that all its curves share, whatever the runs.
    """

    column: str
    title: str
    exactly: str = ""
    height: int = 96
    points: int = 2_000


PANELS = (
    Panel(column="loss", title="Loss", exactly=" (nats per supervised token)", height=210, points=8_000),
    Panel(column="learning_rate", title="Learning rate"),
    Panel(column="grad_norm", title="Gradient norm", exactly=", before clipping"),
    Panel(column="tokens_per_second", title="Tokens per second"),
    Panel(column="device_memory_bytes", title="Device memory"),
)

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "tokens_seen": ((1e9, "billion tokens"), (1e6, "million tokens"), (1e3, "thousand tokens"), (1, "tokens")),
    "seconds": ((7200, "hours"), (120, "minutes"), (1, "seconds")),
    "device_memory_bytes": ((2**30, "GiB"), (2**20, "MiB"), (1, "bytes")),
}
_DIVISORS = {"hours": 3600.0, "minutes": 60.0}


@dataclass(frozen=True, kw_only=True)
class View:
    """How the reader wants to see curves.

    Attributes:
        x: What runs along the bottom.
        log: Whether loss and gradient norm are on a logarithmic scale; values that are not positive are then left out.
        log_x: The same for what runs along the bottom.
        clip: Whether the range of a panel leaves out the lowest and the highest hundredth of its values.
        smoothing: Weight of the moving average, from 0 for none up to but not including 1; the raw line stays visible.
    """

    x: Axis = "step"
    log: bool = False
    log_x: bool = False
    clip: bool = False
    smoothing: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The points of one part of a line in one panel, `[points]` float32 each."""

    name: str
    part: Part
    colour: str
    dashes: tuple[int, ...]
    x: np.ndarray
    y: np.ndarray
    smooth: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class Place:
    """A mark inside a panel."""

    name: str
    colour: str
    x: float
    y: float
    text: str
    score: float | None


@dataclass(frozen=True, kw_only=True)
class Plotted:
    """One panel with what is in it; low and high are None where the values decide."""

    panel: Panel
    title: str
    log: bool
    low: float | None
    high: float | None
    curves: tuple[Curve, ...]
    resumed: tuple[Place, ...]
    scores: tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """All panels, how many points of how many they show, and how many of these are out of range."""

    panels: tuple[Plotted, ...]
    x_title: str
    log_x: bool
    single: bool
    drawn: int
    total: int
    outside: int

    @property
    def remark(self) -> str:
        """What a reader must know about thinned and clipped curves; empty if every point is to be seen."""
        said = []
        if self.drawn != self.total:
            said.append(
                f"{count(self.drawn)} of {count(self.total)} points drawn; the extremes of each stretch are kept."
            )
        if self.outside:
            points = "point is" if self.outside == 1 else "points are"
            said.append(f"{count(self.outside)} {points} outside the range shown.")
        return " ".join(said)


def plot(lines: Sequence[Line], view: View) -> Plot:
    """Return the curves of these runs, panel by panel; a panel that no run has values for is left out."""
    every = [series for line in lines for _, series in line.parts()]
    divisor, unit = _scale(view.x, [series.columns[view.x] for series in every])
    across = {id(series): _drawable(series.columns[view.x] / divisor, positive=view.log_x) for series in every}
    panels, drawn, total, outside = [], 0, 0, 0
    for panel in PANELS:
        if any(series.has(panel.column) for series in every):
            plotted, sizes = _plotted(panel, lines, view, divisor, across)
            panels.append(plotted)
            drawn, total, outside = drawn + sizes[0], total + sizes[1], outside + sizes[2]
    return Plot(
        panels=tuple(panels),
        x_title=unit,
        log_x=view.log_x,
        single=len(lines) == 1,
        drawn=drawn,
        total=total,
        outside=outside,
    )


def _plotted(
    panel: Panel, lines: Sequence[Line], view: View, x_divisor: float, across: Mapping[int, np.ndarray]
) -> tuple[Plotted, tuple[int, int, int]]:
    """Return a panel, and how many points it draws, of how many, and how many of all lie outside its range."""
    stated = [(line, part, series) for line in lines for part, series in line.parts() if series.has(panel.column)]
    divisor, unit = _scale(panel.column, [series.columns[panel.column] for *_, series in stated])
    log = view.log and panel.column in {"loss", "grad_norm"}
    values = [_drawable(series.columns[panel.column] / divisor, positive=log) for *_, series in stated]
    clips = view.clip and panel.column != "learning_rate"
    low, high = value_range.middle(values, log=log) if clips else value_range.room(values)
    points = min(POINTS, panel.points // len(stated))
    curves = []
    for (line, part, series), y in zip(stated, values, strict=True):
        as_measured = panel.column == "learning_rate" or part == "evaluation"
        curves.append(_curve(line, part, across[id(series)], y, points, 0.0 if as_measured else view.smoothing))
    scores = tuple(_places(lines, "scores", view, x_divisor, "loss", divisor)) if panel.column == "loss" else ()
    plotted = Plotted(
        panel=panel,
        title=_title(panel, unit, stated, scores),
        log=log,
        low=low,
        high=high,
        curves=tuple(curves),
        resumed=tuple(_places(lines, "resumed", view, x_divisor, panel.column, divisor)),
        scores=scores,
    )
    outside = value_range.outside(values, low, high) + sum(
        _too_large(series.columns[panel.column], divisor) for *_, series in stated
    )
    return plotted, (sum(len(curve.x) for curve in curves), sum(len(y) for y in values), outside)


def _title(panel: Panel, unit: str, stated: Sequence[tuple[Line, Part, Series]], scores: Sequence[Place]) -> str:
    """Return a panel's title with its unit, and what a dotted line and a mark in it are."""
    title = panel.title + (f" ({unit})" if unit else "")
    if panel.exactly:
        title += ", as stated" if any(line.is_foreign for line, *_ in stated) else panel.exactly
    if any(part == "evaluation" for _, part, _ in stated):
        title += "; dotted: at evaluations"
    marked = shortened(", ".join(dict.fromkeys(place.text for place in scores)), _LONGEST_NAMES)
    return f"{title}; ◆ {marked}" if marked else title


def _curve(line: Line, part: Part, x: np.ndarray, y: np.ndarray, points: int, smoothing: float) -> Curve:
    chosen = kept(y, points)
    smooth = smoothed(y, smoothing)[chosen].astype(np.float32) if smoothing > 0 else None
    # Curves that keep every point share one x, which is then sent once.
    x, y = (x, y) if len(chosen) == len(y) else (x[chosen], y[chosen])
    return Curve(name=line.name, part=part, colour=line.colour, dashes=line.dashes, x=x, y=y, smooth=smooth)


def _drawable(values: np.ndarray, *, positive: bool) -> np.ndarray:
    """Return numbers in four bytes, which hold more digits than a screen shows; NaN for what has no place there.

    Args:
        values: Any numbers.
        positive: Whether zero and what is below it has no place, as on a logarithmic axis.
    """
    with np.errstate(over="ignore"):
        short = values.astype(np.float32)
    return np.where(np.isfinite(short) & (short > 0 if positive else True), short, np.float32(np.nan))


def _places(
    lines: Sequence[Line], kind: Literal["resumed", "scores"], view: View, x_divisor: float, column: str, divisor: float
) -> Iterator[Place]:
    """Yield the marks of a kind where this view has a place for them, at the height of the curve there."""
    for line in lines:
        for mark in getattr(line, kind):
            x = mark.at.get(view.x)
            if x is None or not np.isfinite(x) or (view.log_x and x <= 0):
                continue
            y = _value_before(line, column, mark.at["step"]) / divisor
            if kind == "resumed" or np.isfinite(y):
                yield Place(name=line.name, colour=line.colour, x=x / x_divisor, y=y, text=mark.text, score=mark.score)


def _value_before(line: Line, column: str, step: float) -> float:
    """Return the last value of a column at or before a step, NaN where there is none."""
    for series in (line.series, line.earlier):
        if series is not None and series.rows:
            row = int(np.searchsorted(series.columns["step"], step, side="right")) - 1
            if row >= 0:
                return float(series.columns[column][row])
    return float("nan")


def _too_large(values: np.ndarray, divisor: float) -> int:
    """Return how many numbers four bytes cannot hold."""
    return int(np.count_nonzero(np.isfinite(values) & (np.abs(values) / divisor > np.finfo(np.float32).max)))


def _scale(column: str, arrays: Sequence[np.ndarray]) -> tuple[float, str]:
    """Return the divisor and the unit in which the largest value of these columns reads well."""
    if column == "step":
        return 1.0, "steps"
    largest = max((float(np.nanmax(array)) for array in arrays if np.isfinite(array).any()), default=0.0)
    for threshold, unit in _SCALES.get(column, ()):
        if largest >= threshold or threshold == 1:
            return _DIVISORS.get(unit, float(threshold)), unit
    return 1.0, ""
