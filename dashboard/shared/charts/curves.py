"""Which curves are drawn, of one or more runs: panels above each other, one x axis, values in units that read well.

What lives here: which points, panels, ranges and marks. What does not: how they are drawn (`echarts`). Long series are
thinned here (`sampling`), and the plot states how many points of how many it shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dashboard.shared.charts.bands import MeanBand, band
from dashboard.shared.charts.line import Axis, Part, RunLine
from dashboard.shared.charts.panels import Panel, panels, scale, unit_of_axis
from dashboard.shared.charts.sampling import POINTS, count_outside, middle, moving_average, thin_out, widen
from dashboard.shared.reading.series import Series
from dashboard.shared.words.text import shorten
from schemas.formats import count

_AS_SET, _LOSS = "learning_rate", "loss"
"""The field that is set, so that it is not smoothed or clipped; and the one at whose height scores are drawn."""

Scale = Literal["auto", "linear", "log"]
FAR = 50.0
"""How many times its last value the first loss of a run is, from where on a linear axis shows a flat line."""

_LONGEST_NAMES = 60
"""Characters that a title gives to what the marks in it are."""

_MOST_POINTS = 8_000
"""Points that all high panels share, and all low ones."""


@dataclass(frozen=True, kw_only=True)
class CurveOptions:
    """How the reader wants to see curves.

    Attributes:
        x: What runs along the bottom.
        loss: The scale of the loss, `linear`, `log` or `auto`; values that are not positive are left out of `log`.
        log_x: The same for what runs along the bottom.
        clip: Whether the range of a panel leaves out the lowest and the highest hundredth of its values.
        smoothing: Weight of the moving average, from 0 for none up to but not including 1; the raw line stays visible.
    """

    x: Axis = "step"
    loss: Scale = "auto"
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
    is_faint: bool = False
    """Whether it stands behind the mean over seeds that it is in."""


@dataclass(frozen=True, kw_only=True)
class CurveMark:
    """A mark inside a panel."""

    name: str
    colour: str
    x: float
    y: float
    text: str
    score: float | None


@dataclass(frozen=True, kw_only=True)
class PlottedPanel:
    """One panel with what is in it; low and high are None where the values decide."""

    panel: Panel
    title: str
    log: bool
    low: float | None
    high: float | None
    curves: tuple[Curve, ...]
    resumed: tuple[CurveMark, ...]
    scores: tuple[CurveMark, ...]
    bands: tuple[MeanBand, ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """All panels, how many points of how many they show, and how many of these are out of range."""

    panels: tuple[PlottedPanel, ...]
    x_title: str
    log_x: bool
    single: bool
    drawn: int
    total: int
    outside: int

    @property
    def bands(self) -> dict[str, MeanBand]:
        """The means over seeds by their names, each once."""
        return {band.name: band for panel in self.panels for band in panel.bands}

    @property
    def remark(self) -> str:
        """What a reader must know about thinned and clipped curves; empty if every point is to be seen."""
        said, drawn = [], f"{count(self.drawn)} of {count(self.total)} points drawn"
        if self.drawn != self.total:
            said.append(f"{drawn}; the extremes of each stretch are kept.")
        if self.outside:
            points = "point is" if self.outside == 1 else "points are"
            said.append(f"{count(self.outside)} {points} outside the range shown.")
        if self.bands:
            said.append("Band: mean ± standard deviation over seeds, of the logarithms where the axis is logarithmic.")
        return " ".join(said)


def plot(lines: Sequence[RunLine], view: CurveOptions) -> Plot:
    """Return the curves of these runs, panel by panel; a panel that no run has values for is left out."""
    every = [series for line in lines for _, series in line.parts()]
    divisor, unit = scale(unit_of_axis(view.x), [series.columns[view.x] for series in every])
    across = {id(series): _drawable(series.columns[view.x] / divisor, positive=view.log_x) for series in every}
    shown, drawn, total, outside = [], 0, 0, 0
    there = [panel for panel in panels() if any(series.has(panel.column) for series in every)]
    alike = Counter(panel.is_large for panel in there)
    for panel in there:
        points = _MOST_POINTS // alike[panel.is_large]
        plotted, sizes = _plot_panel(panel, lines, view, divisor, across, points=points)
        shown.append(plotted)
        drawn, total, outside = drawn + sizes[0], total + sizes[1], outside + sizes[2]
    return Plot(
        panels=tuple(shown),
        x_title=unit,
        log_x=view.log_x,
        single=len(lines) == 1,
        drawn=drawn,
        total=total,
        outside=outside,
    )


def _plot_panel(
    panel: Panel,
    lines: Sequence[RunLine],
    view: CurveOptions,
    x_divisor: float,
    across: Mapping[int, np.ndarray],
    *,
    points: int,
) -> tuple[PlottedPanel, tuple[int, int, int]]:
    """Return a panel, and how many points it draws, of how many, and how many of all lie outside its range."""
    stated = [(line, part, series) for line in lines for part, series in line.parts() if series.has(panel.column)]
    divisor, unit = scale(panel.unit, [series.columns[panel.column] for *_, series in stated])
    log = panel.column == _LOSS and is_log(view, [(line, series) for line, part, series in stated if part == "own"])
    values = [_drawable(series.columns[panel.column] / divisor, positive=log) for *_, series in stated]
    clips = view.clip and panel.column != _AS_SET
    low, high = middle(values, log=log) if clips else widen(values)
    points = min(POINTS, points // len(stated))
    curves = []
    for (line, part, series), y in zip(stated, values, strict=True):
        as_measured = panel.column == _AS_SET or part == "evaluation"
        weight = 0.0 if as_measured else view.smoothing
        curves.append(_curve(line, part, across[id(series)], y, points, weight, log=log))
    bands, behind = [], set()
    for members, found in _bands(stated, values, across, points, log=log, smoothing=view.smoothing):
        bands.append(found)
        behind |= members
    curves = [replace(curve, is_faint=curve.name in behind) for curve in curves]
    scores = tuple(_places(lines, "scores", view, x_divisor, panel.column, divisor)) if panel.column == _LOSS else ()
    plotted = PlottedPanel(
        panel=panel,
        title=_title(panel, unit, stated, scores),
        log=log,
        low=low,
        high=high,
        curves=tuple(curves),
        resumed=tuple(_places(lines, "resumed", view, x_divisor, panel.column, divisor)),
        scores=scores,
        bands=tuple(bands),
    )
    outside = count_outside(values, low, high) + sum(
        _too_large(series.columns[panel.column], divisor) for *_, series in stated
    )
    return plotted, (sum(len(curve.x) for curve in curves), sum(len(y) for y in values), outside)


def is_log(view: CurveOptions, stated: Sequence[tuple[RunLine, Series]]) -> bool:
    """Return whether the loss is on a logarithmic axis: as the reader wants it, or because a loss falls that far."""
    if view.loss != "auto":
        return view.loss == "log"
    losses = [
        series.columns[_LOSS][np.isfinite(series.columns[_LOSS])] for line, series in stated if not line.is_doubtful
    ]
    return any(len(loss) > 1 and loss.min() > 0 and loss[0] > FAR * loss[-1] for loss in losses)


def _bands(
    stated: Sequence[tuple[RunLine, Part, Series]],
    values: Sequence[np.ndarray],
    across: Mapping[int, np.ndarray],
    points: int,
    *,
    log: bool,
    smoothing: float,
) -> Iterator[tuple[set[str], MeanBand]]:
    """Yield means of runs that are the same but for their seed, with their names; a contradictory one is in none."""
    kin: dict[str, list[tuple[RunLine, Series, np.ndarray]]] = {}
    for (line, part, series), y in zip(stated, values, strict=True):
        if part == "own" and line.kin and not line.is_doubtful:
            kin.setdefault(line.kin, []).append((line, series, y))
    for members in kin.values():
        if len(members) < 2:
            continue
        drawn = [
            (series.columns["step"], across[id(series)], _smooth(y, smoothing, log=log)) for _, series, y in members
        ]
        found = band(drawn, colour=members[0][0].colour, log=log)
        if found is not None:
            few = thin_out(found.mean, points)
            ends = {name: getattr(found, name)[few] for name in ("x", "low", "mean", "high")}
            yield {line.name for line, *_ in members}, replace(found, **ends)


def _title(panel: Panel, unit: str, stated: Sequence[tuple[RunLine, Part, Series]], scores: Sequence[CurveMark]) -> str:
    """Return a panel's title with its unit, and what a dotted line and a mark in it are."""
    told = [own.has(name) for *_, own in stated for name in ("reward_margin", "reward_mean") if name in own.columns]
    if panel.exactly and not (panel.column == "loss" and any(told)):
        is_foreign = any(line.is_foreign for line, *_ in stated)
        title = f"{panel.title}, as stated" if is_foreign else f"{panel.title} ({panel.exactly})"
    else:
        title = panel.title + (f" ({unit})" if unit and unit.lower() != panel.title.lower() else "")
    if any(part == "evaluation" for _, part, _ in stated):
        title += "; dotted: at evaluations"
    marked = shorten(", ".join(dict.fromkeys(place.text for place in scores)), _LONGEST_NAMES)
    return f"{title}; ◆ {marked}" if marked else title


def _smooth(values: np.ndarray, weight: float, *, log: bool) -> np.ndarray:
    """Return the moving average as the eye takes it: on a logarithmic axis that of the logarithms, amid the points."""
    return np.exp(moving_average(np.log(values), weight)) if log else moving_average(values, weight)


def _curve(
    line: RunLine, part: Part, x: np.ndarray, y: np.ndarray, points: int, smoothing: float, *, log: bool
) -> Curve:
    chosen = thin_out(y, points)
    smooth = _smooth(y, smoothing, log=log)[chosen].astype(np.float32) if smoothing > 0 else None
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
    lines: Sequence[RunLine],
    kind: Literal["resumed", "scores"],
    view: CurveOptions,
    x_divisor: float,
    column: str,
    divisor: float,
) -> Iterator[CurveMark]:
    """Yield the marks of a kind where this view has a place for them, at the height of the curve there."""
    for line in lines:
        for mark in getattr(line, kind):
            x = mark.at.get(view.x)
            if x is None or not np.isfinite(x) or (view.log_x and x <= 0):
                continue
            y = line.value_before(column, mark.at["step"]) / divisor
            if kind == "resumed" or np.isfinite(y):
                yield CurveMark(
                    name=line.name, colour=line.colour, x=x / x_divisor, y=y, text=mark.text, score=mark.score
                )


def _too_large(values: np.ndarray, divisor: float) -> int:
    """Return how many numbers four bytes cannot hold."""
    return int(np.count_nonzero(np.isfinite(values) & (np.abs(values) / divisor > np.finfo(np.float32).max)))
