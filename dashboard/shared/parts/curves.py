"""Training curves of one or several runs as one Plotly figure: stacked panels, one x axis, one hover label.

A resumed run is drawn with the rows of its parents (docs/decisions/run-folder.md). Long series are thinned, and
the remark below the figure says so.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared import reading
from dashboard.shared.charts.theme import Palette, choose_unit, label, palette, template
from dashboard.shared.files import Series
from dashboard.shared.parts import markup
from dashboard.shared.words import csv_cell
from evidence.imports.run import ImportedRun, MetricRow, longest_course, loss_series
from evidence.index.summary import RunSummary
from evidence.run import Run
from schemas.catalog import TIME, RowField, number_names, row_fields
from schemas.formats import count
from schemas.reading import get_number, get_str

Axis = str
"""Column of the x axis, one of `axes()`."""

Document = Mapping[str, Any] | None
Part = Literal["earlier", "own", "evaluation"]
Scale = Literal["auto", "linear", "log"]

PARTS: Mapping[Part, str] = {"earlier": "before it was resumed", "own": "", "evaluation": "at evaluations"}
"""Parts of a curve, in words."""

LOG_RATIO = 50.0  # with the scale `auto`, the loss axis is logarithmic if a loss falls by more than this factor

POINTS = 4_000  # most points of one curve

DASHES = ("solid", "longdash", "longdashdot")
"""Dashes of runs: each colour is used with the first, then with the second, and so on."""
DOUBTFUL_DASH = "3px,4px"  # dash of a run that is graded contradictory
MAX_PARENTS = 50  # most parents of a resumed run that are drawn; a longer chain is an error in the manifests


_LOSS = "loss"
_LEARNING_RATE = "learning_rate"
_OTHER_OBJECTIVES = ("reward_margin", "reward_mean")
_PART_DASHES: Mapping[Part, str] = {"earlier": "dash", "evaluation": "dot"}
_LARGE_PIXELS = 210
_SMALL_PIXELS = 96
_GAP_PIXELS = 40
_TOP_PIXELS = 52
_BOTTOM_PIXELS = 46
_LEGEND_ROW_PIXELS = 21
_MAX_LEGEND_ROWS = 3
_PANEL_POINTS = 6_000  # points shared by all large panels, and by all small ones, so that a page stays below 300 kB
_MAX_HOVER_ROWS = 40
_LARGEST = float(np.finfo(np.float32).max)
_MAX_SINGLE_STEPS = 10  # up to this many steps, each has a tick
_CLIP_PERCENTILES = (1.0, 99.0)
_LEAST_SPREAD = 0.01  # an axis spans at least this fraction of its values, so that tick labels stay short


class Mark(NamedTuple):
    """Where a run was resumed: its position on each axis, and a text."""

    at: Mapping[Axis, float]
    text: str


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """Curves of a run.

    Attributes:
        name: Name of the run.
        series: Its own rows.
        earlier: Rows of its parents, up to the step at which each was resumed.
        evaluation: Losses of evaluations during training.
        resumed: Where it was resumed.
        is_doubtful: Whether it is graded contradictory, and drawn grey.
        is_foreign: Whether another tool wrote the rows, so that the definition of the loss is unknown.
    """

    name: str
    series: Series
    earlier: Series | None = None
    evaluation: Series | None = None
    resumed: tuple[Mark, ...] = ()
    is_doubtful: bool = False
    is_foreign: bool = False

    def parts(self) -> list[tuple[Part, Series]]:
        """Return the parts of the curve in drawing order."""
        found: dict[Part, Series | None] = {"earlier": self.earlier, "own": self.series, "evaluation": self.evaluation}
        return [(part, rows) for part, rows in found.items() if rows is not None]

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(series.rows for _, series in self.parts())


@dataclass(frozen=True, kw_only=True)
class CurveOptions:
    """Options of the user.

    Attributes:
        x: Column of the x axis.
        loss: Scale of the loss axis. A logarithmic axis leaves out values that are not positive.
        log_x: Whether the x axis is logarithmic.
        clip: Whether each panel leaves out the lowest and the highest percent of its values.
        smoothing: Weight of the moving average, from 0 (none) up to but not including 1.
        zoom: First and last value of the x column, or None for all.
    """

    x: Axis = "step"
    loss: Scale = "auto"
    log_x: bool = False
    clip: bool = False
    smoothing: float = 0.0
    zoom: tuple[float, float] | None = None


class CurvesChart(NamedTuple):
    """A figure, the titles of its panels, the x value for 1 on the x axis, and a remark on what is not drawn."""

    figure: go.Figure
    titles: tuple[str, ...]
    x_divisor: float
    remark: str


@cache
def panel_fields() -> tuple[RowField, ...]:
    """Return the fields of a metric row that have a panel, large panels first."""
    found = [field for field in row_fields() if field.panel is not None]
    return tuple(sorted(found, key=_is_large, reverse=True))


@cache
def axes() -> Mapping[Axis, str]:
    """Return the columns that can be the x axis, with their names."""
    named = {field.name: field.unit.capitalize() or field.title for field in row_fields() if field.is_axis}
    return {"seconds" if name == TIME else name: title for name, title in named.items()}


def draw(lines: Sequence[RunLine], options: CurveOptions, colours: Palette, run_colours: Sequence[str]) -> CurvesChart:
    """Draw the curves of runs, with one panel per column.

    The colours of the runs are used in turn and then again with other dashes.
    """
    x_axis = _XAxis(lines, options)
    looks = itertools.cycle({"color": colour, "dash": dash} for dash in DASHES for colour in run_colours)
    doubtful = {"color": colours.quiet, "dash": DOUBTFUL_DASH}
    styles = {line.name: doubtful if line.is_doubtful else look for line, look in zip(lines, looks, strict=False)}
    parts = [rows for line in lines for _, rows in line.parts()]
    fields = [field for field in panel_fields() if any(rows.has(field.name) for rows in parts)]
    sharing = Counter(map(_is_large, fields))
    panels = [_Panel(field, lines, styles, x_axis, _PANEL_POINTS // sharing[_is_large(field)]) for field in fields]
    figure = stack_panels(
        colours,
        [panel.title for panel in panels],
        [_LARGE_PIXELS if _is_large(field) else _SMALL_PIXELS for field in fields],
        legend_rows=min(_MAX_LEGEND_ROWS, 1 + len(lines) // 6) if len(lines) > 1 else 0,
    )
    figure.add_traces([trace | {"yaxis": f"y{row}"} for row, panel in enumerate(panels, 1) for trace in panel.traces])
    # Traces without points, so that the legend shows the full stroke even if the curves are faint.
    figure.add_traces(
        [_trace(name, [None], [None], {"width": 2.0, **stroke}, showlegend=True) for name, stroke in styles.items()]
    )
    # Streamlit mounts a new chart for new data, which loses Plotly's own zoom; a selection is reported to the server.
    figure.update_layout(dragmode="select", selectdirection="h")
    if len(figure.data) > _MAX_HOVER_ROWS:
        figure.update_layout(hoversubplots="overlaying")
    if len(lines) == 1:
        figure.update_layout(title={"text": label(lines[0].name), "font_size": 12.5, "x": 0, "y": 1, "yanchor": "top"})
    figure.update_layout({f"yaxis{row}": panel.axis() for row, panel in enumerate(panels, 1)}, xaxis=x_axis.layout())
    for line in lines:
        for mark in line.resumed:
            if (x := x_axis.position(mark)) is not None:
                stroke = {"color": styles[line.name]["color"], "dash": "dot", "width": 1.2}
                figure.add_shape(type="line", x0=x, x1=x, yref="paper", y0=0, y1=1, line=stroke)
                # Of annotations, not of shapes, Plotly takes positions on a logarithmic axis as logarithms.
                place = {"x": np.log10(x) if options.log_x else x, "y": 1, "yref": "paper"}
                figure.add_annotation(text=label(mark.text), font_size=11, showarrow=False, xanchor="left", **place)
    return CurvesChart(figure, tuple(panel.title for panel in panels), x_axis.divisor, _remark(panels))


def stack_panels(colours: Palette, titles: Sequence[str], heights: Sequence[int], *, legend_rows: int) -> go.Figure:
    """Return a figure of panels above each other that share the x axis and have the axes `y`, `y2`, … .

    Heights are in pixels, from top to bottom. A legend with more rows than `legend_rows` scrolls.
    """
    plot_pixels = max(1, sum(heights) + _GAP_PIXELS * (len(heights) - 1))
    legend_pixels = _LEGEND_ROW_PIXELS * legend_rows
    top_pixels = _TOP_PIXELS + legend_pixels
    axes: dict[str, Any] = {}
    annotations = []
    top = 1.0
    for row, (title, height) in enumerate(zip(titles, heights, strict=True), start=1):
        bottom = max(0.0, top - height / plot_pixels)
        axis = {"domain": [bottom, top], "anchor": "x", "gridcolor": colours.line, "exponentformat": "power"}
        axes[f"yaxis{row}"] = axis | {"nticks": 7 if height > _SMALL_PIXELS else 5}
        place = {"x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        annotations.append(place | {"text": f"<b>{title}</b>", "showarrow": False, "font": {"size": 12.5}})
        top = bottom - _GAP_PIXELS / plot_pixels
    height = plot_pixels + top_pixels + _BOTTOM_PIXELS
    figure = go.Figure(layout={"template": template(colours), "height": height})
    figure.update_layout(
        axes,
        annotations=annotations,
        paper_bgcolor=colours.paper,
        margin={"t": top_pixels, "b": _BOTTOM_PIXELS},
        hovermode="x unified",
        hoversubplots="axis",
        showlegend=legend_rows > 0,
        legend={"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top", "maxheight": legend_pixels},
        xaxis={
            "anchor": f"y{max(1, len(heights))}",
            "showgrid": False,
            "showspikes": True,
            "spikemode": "across",
            "spikethickness": 1,
            "spikedash": "solid",
            "spikecolor": colours.quiet,
        },
    )
    return figure


class _XAxis:
    """The x axis of all panels."""

    def __init__(self, lines: Sequence[RunLine], options: CurveOptions) -> None:
        self.options = options
        columns = [rows.columns[options.x] for line in lines for _, rows in line.parts()]
        unit = next((field.unit for field in row_fields() if field.name == options.x), "seconds")
        self.divisor, self.unit = choose_unit(unit, _finite(columns).max(initial=0.0))
        values = _finite([_drawable(column / self.divisor, positive=options.log_x) for column in columns])
        self.low, self.high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
        if options.zoom is not None:
            self.low, self.high = options.zoom[0] / self.divisor, options.zoom[1] / self.divisor

    def values(self, rows: Series) -> np.ndarray:
        """Return the positions of rows."""
        return _drawable(rows.columns[self.options.x] / self.divisor, positive=self.options.log_x)

    def position(self, mark: Mark) -> float | None:
        """Return the position of a mark, or None if it is outside the axis."""
        x = mark.at.get(self.options.x, math.nan) / self.divisor
        return x if self.low <= x <= self.high else None

    def inside(self, x: np.ndarray) -> np.ndarray:
        """Return the indices of the positions that are on the axis, with a neighbour on each side."""
        if self.options.zoom is None:
            return np.arange(len(x))
        found = np.flatnonzero((x >= self.low) & (x <= self.high))
        return np.arange(max(0, found[0] - 1), min(len(x), found[-1] + 2)) if len(found) else found

    def layout(self) -> dict[str, Any]:
        """Return the attributes of the Plotly axis."""
        is_log = self.options.log_x and self.low > 0
        low, high = (math.log10(self.low), math.log10(self.high)) if is_log else (self.low, self.high)
        margin = 0.01 * (high - low)
        digits = ",d" if self.unit == "steps" else ",.4~r"
        has_few_steps = self.unit == "steps" and not is_log and high - low <= _MAX_SINGLE_STEPS
        return {
            "type": "log" if is_log else "linear",
            "range": [low - margin, high + margin] if margin else None,
            "dtick": 1 if has_few_steps else None,
            "title_text": self.unit,
            "tickformat": digits,
            "unifiedhovertitle_text": f"%{{x:{digits}}} {self.unit}",
        }


class _Panel:
    """The panel of one column: its title, axis and traces, whose curves share `points`. Styles are by name of run."""

    def __init__(
        self, field: RowField, lines: Sequence[RunLine], styles: Mapping[str, Any], x_axis: _XAxis, points: int
    ) -> None:
        self.field, self.lines, self.styles, self.x_axis = field, lines, styles, x_axis
        self.options = x_axis.options
        stated = [(line, part, rows) for line in lines for part, rows in line.parts() if rows.has(field.name)]
        columns = [rows.columns[field.name] for *_, rows in stated]
        self.divisor, self.unit = choose_unit(field.unit, _finite(columns).max(initial=0.0))
        self.is_log = field.name == _LOSS and self._falls_far()
        self.smoothing = 0.0 if field.name == _LEARNING_RATE else self.options.smoothing
        self.points = min(POINTS, points // len(stated))
        self.title = self._title(stated)
        self.drawn = self.total = 0
        self.traces: list[dict[str, Any]] = []
        for line, part, rows in stated:
            self._add_curve(line, part, rows)
        self.values = _finite([self._values(rows)[x_axis.inside(x_axis.values(rows))] for *_, rows in stated])
        self.range = value_range(self.values, clip=self.options.clip and field.name != _LEARNING_RATE, log=self.is_log)
        low, high = self.range or (-np.inf, np.inf)
        too_large = np.count_nonzero(_finite(columns) / self.divisor > _LARGEST)
        self.outside = int(np.count_nonzero((self.values < low) | (self.values > high)) + too_large)

    def axis(self) -> dict[str, Any]:
        """Return the attributes of the Plotly axis."""
        if not self.is_log:
            return {"type": "linear", "range": self.range}
        decades = np.ptp(np.log10(self.values)) if len(self.values) else 0.0
        ends = np.log10(self.range) if self.range else None
        return {"type": "log", "range": ends, "dtick": 1 if decades > 2 else None}

    def _falls_far(self) -> bool:
        if self.options.loss != "auto":
            return self.options.loss == "log"
        losses = [_finite([line.series.columns[_LOSS]]) for line in self.lines if not line.is_doubtful]
        return any(len(loss) > 1 and loss.min() > 0 and loss[0] > LOG_RATIO * loss[-1] for loss in losses)

    def _title(self, stated: Sequence[tuple[RunLine, Part, Series]]) -> str:
        title, exactly = self.field.title, (self.field.panel or {}).get("exactly")
        if self.field.name == _LOSS and any(rows.has(name) for *_, rows in stated for name in _OTHER_OBJECTIVES):
            exactly = None  # The loss of these objectives is not a mean over supervised tokens.
        if exactly and any(line.is_foreign for line, *_ in stated):
            title += ", as stated"
        elif exactly or self.unit.lower() not in {"", title.lower()}:
            title += f" ({exactly or self.unit})"
        if any(part == "evaluation" for _, part, _ in stated):
            title += "; dotted: at evaluations"
        return title

    def _values(self, rows: Series) -> np.ndarray:
        return _drawable(rows.columns[self.field.name] / self.divisor, positive=self.is_log)

    def _hover(self, words: str = "") -> dict[str, Any]:
        """Return the hover text of a curve: its column, value and run."""
        run = "<extra></extra>" if len(self.lines) == 1 else ""
        return {"hovertemplate": f"{self.field.title}{words} %{{y:,.5~g}}{run}"}

    def _add_curve(self, line: RunLine, part: Part, rows: Series) -> None:
        """Add a part of a run: a faint measured curve behind the smoothed one, or the measured curve alone."""
        x, y = self.x_axis.values(rows), self._values(rows)
        inside = self.x_axis.inside(x)
        kept = inside[thin(y[inside], self.points)]
        self.drawn, self.total = self.drawn + len(kept), self.total + len(inside)
        style = self.styles[line.name] | ({"dash": _PART_DASHES[part]} if part in _PART_DASHES else {})
        words = f", {PARTS[part]}" if PARTS[part] else ""
        more = self._hover(words) | {"opacity": 0.6 if part == "earlier" else 1.0}
        if part == "evaluation":
            more |= {"mode": "lines+markers", "marker": {"size": 5}}
        elif self.smoothing > 0:
            hover = self._hover(f"{words}, not smoothed") if len(self.lines) == 1 else {"hoverinfo": "skip"}
            self.traces.append(_trace(line.name, x[kept], y[kept], style | {"width": 1.0}, opacity=0.35, **hover))
            # On a logarithmic axis, the logarithms are averaged.
            y = np.exp(smooth(np.log(y), self.smoothing)) if self.is_log else smooth(y, self.smoothing)
            y = y.astype(np.float32)
        self.traces.append(_trace(line.name, x[kept], y[kept], style | {"width": 1.6}, **more))


def _trace(name: str, x: Any, y: Any, line: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    shared = {"type": "scatter", "mode": "lines", "name": label(name), "legendgroup": label(name), "showlegend": False}
    return {**shared, "x": x, "y": y, "line": line, **more}


def _remark(panels: Sequence[_Panel]) -> str:
    drawn, total, outside = (sum(getattr(one, name) for one in panels) for name in ("drawn", "total", "outside"))
    sentences = [f"{count(drawn)} of {count(total)} points drawn; minima and maxima are kept."] if drawn < total else []
    if outside:
        sentences.append(f"{count(outside)} {'point is' if outside == 1 else 'points are'} outside the axis range.")
    return " ".join(sentences)


def _is_large(field: RowField) -> bool:
    return bool(field.panel and field.panel.get("large"))


def _finite(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([array[np.isfinite(array)] for array in arrays])


def _drawable(values: np.ndarray, *, positive: bool) -> np.ndarray:
    """Return values as float32, NaN where a value is not finite, too large, or not positive on a logarithmic axis."""
    with np.errstate(over="ignore"):
        short = values.astype(np.float32)
    return np.where(np.isfinite(short) & (short > 0 if positive else True), short, np.float32(np.nan))


def thin(values: np.ndarray, points: int = POINTS) -> np.ndarray:
    """Return the indices to draw: first, last, and the minimum and maximum of each of `points / 2` equal buckets.

    A stride or a random sample would lose spikes of one step. For values `[3, 1, 2, 9, 2, 2]` and 4 points the buckets
    are `[3, 1, 2]` and `[9, 2, 2]`, the indices `[0, 1, 3, 4, 5]`. A bucket without a finite value keeps its first
    index, so that the gap in the line stays.

    Args:
        values: `[steps]`, NaN where there is no value.
        points: At least 2; the result has at most `points` + 2 indices.

    Returns:
        `[kept]` increasing indices into `values`; all of them if there are at most `points`.
    """
    size = len(values)
    if size <= points:
        return np.arange(size)
    edges = np.linspace(0, size, points // 2 + 1).astype(np.int64)
    buckets, finite = np.repeat(np.arange(points // 2), np.diff(edges)), np.isfinite(values)
    lowest = pd.Series(np.where(finite, values, np.inf)).groupby(buckets).idxmin()
    highest = pd.Series(np.where(finite, values, -np.inf)).groupby(buckets).idxmax()
    return np.unique(np.concatenate([[0], lowest, highest, [size - 1]]))


def smooth(values: np.ndarray, weight: float) -> np.ndarray:
    """Return an exponential moving average in both directions, which does not lag behind a falling loss.

    A value `k` steps away counts `weight ** k`: for `[1, 2, 3]` and weight 0.5 the result is `[1.571, 2, 2.429]`. A
    value that is not finite stays as it is and does not affect the others.

    Args:
        values: `[steps]`.
        weight: From 0 (no smoothing) up to but not including 1.
    """
    result = values.astype(np.float64)
    finite = pd.Series(result[np.isfinite(result)])
    if weight <= 0 or finite.empty:
        return result
    before = finite.ewm(alpha=1 - weight).mean().to_numpy()
    after = finite[::-1].ewm(alpha=1 - weight).mean().to_numpy()[::-1]
    # The sum of the weights of each average; both include the value itself.
    sums = (1 - weight ** np.arange(1, len(finite) + 1, dtype=np.float64)) / (1 - weight)
    both = before * sums + after * sums[::-1] - finite.to_numpy()
    result[np.isfinite(result)] = both / (sums + sums[::-1] - 1)
    return result


def value_range(values: np.ndarray, *, clip: bool, log: bool) -> tuple[float, float] | None:
    """Return the range of an axis with these finite values, or None if Plotly's own range is fine.

    It leaves out outliers if `clip` is set. Otherwise it is only set for values that hardly differ.
    """
    if not len(values):
        return None
    low, high = (float(end) for end in np.percentile(values, _CLIP_PERCENTILES if clip else (0, 100)))
    if clip and log and low < high:
        return low * (low / high) ** 0.05, high * (high / low) ** 0.05
    if clip:
        margin = 0.05 * (high - low)
        return (max(0.0, low - margin) if low >= 0 else low - margin, high + margin) if low < high else None
    margin = (_LEAST_SPREAD if low < high else 0.5) * max(abs(low), abs(high))
    return (low - margin, high + margin) if high - low < margin else None


def curves_csv(lines: Sequence[RunLine]) -> str:
    """Return all rows of runs as CSV. Missing values are empty."""
    columns = [*axes(), *(field.name for field in panel_fields())]
    tables = [
        pd.DataFrame({"run": csv_cell(line.name), "part": PARTS[part]} | {name: rows.columns[name] for name in columns})
        for line in lines
        for part, rows in line.parts()
    ]
    # Steps and bytes are written as integers.
    return pd.concat(tables, ignore_index=True).convert_dtypes().to_csv(index=False)


class RecordedRun(NamedTuple):
    """What is read of a run or of one of its parents."""

    manifest: Document
    series: Series


def line_with_parents(
    name: str, run: RecordedRun, find: Callable[[str], RecordedRun | None]
) -> tuple[RunLine, str | None]:
    """Return a run with the rows of its parents before it, and the ID of a parent that was not found, if any.

    The time of a run continues that of its parent: the pause between the two is left out.

    `find` returns the run of an ID, or None.
    """
    chain, missing, seen = [(run, np.inf)], None, set[str]()
    while missing is None and len(chain) <= MAX_PARENTS:
        manifest = chain[0][0].manifest
        parent, step = get_str(manifest, "parent", "run_id"), get_number(manifest, "parent", "step")
        if parent is None or step is None or parent in seen:
            break
        seen.add(parent)
        if (found := find(parent)) is None:
            missing = parent
        else:
            chain.insert(0, (found, step))
    seconds = 0.0
    parts: list[Series] = []
    resumed: list[Mark] = []
    for (manifest, series), last_step in chain:
        rows = series.up_to(last_step, after_seconds=seconds)
        parts.append(rows)
        if not rows.rows:
            continue
        if (step := get_number(manifest, "parent", "step")) is not None:
            at = {name: float(rows.columns[name][0]) for name in axes()}
            resumed.append(Mark(at, f"resumed after step {count(step)}"))
        seconds = float(rows.columns["seconds"][-1])
    *earlier, own = parts
    before = Series.concatenate([rows for rows in earlier if rows.rows])
    return RunLine(name=name, series=own, earlier=before, resumed=tuple(resumed)), missing


_LOG_X, _HIDE_OUTLIERS = "log x", "hide outliers"
_SMOOTHING_WEIGHTS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)


def load_line(name: str, run: Run, known: Mapping[str, RunSummary]) -> tuple[RunLine, str]:
    """Return the curves of a run, and a remark on them (empty for none)."""
    view, summary = run.foreign(), known.get(name)
    if view is not None:
        return build_line(name, view)
    has_parent = bool(run.manifest and run.manifest.get("parent"))
    by_id = {summary.run_id: summary for summary in known.values()} if has_parent else {}

    def record(run: Run) -> RecordedRun:
        return RecordedRun(run.manifest, reading.load_series(run.path))

    def find(run_id: str) -> RecordedRun | None:
        return record(reading.load_run(by_id[run_id].path)) if run_id in by_id else None

    line, missing = line_with_parents(name, record(run), find)
    remark = f"Its parent {missing} is not in this folder, so the curves begin where it was resumed." if missing else ""
    if summary is not None and summary.grade == "contradictory":
        line = replace(line, is_doubtful=True)
        remark = f"This run is contradictory, so it is drawn grey. {remark}".strip()
    return line, remark


def _controls() -> CurveOptions:
    """Draw the controls and return their values, which are part of the URL."""
    shared: dict[str, Any] = {"required": True, "bind": "query-params"}
    title = axes().__getitem__
    x = st.segmented_control("X axis", list(axes()), default="step", format_func=title, key="x", **shared)
    loss: Scale = st.segmented_control(
        "Loss",
        ["auto", "linear", "log"],
        default="auto",
        key="loss",
        help=f"Auto is logarithmic if a loss falls by more than a factor of {LOG_RATIO:.0f}.",
        **shared,
    )
    scales = st.pills(
        "Scale",
        [_LOG_X, _HIDE_OUTLIERS],
        selection_mode="multi",
        key="scale",
        bind="query-params",
        help="Use a logarithmic x axis. Hide the lowest and the highest percent of the values of each panel.",
    )
    smoothing = st.segmented_control(
        "Smoothing",
        _SMOOTHING_WEIGHTS,
        default=0.0,
        format_func=lambda weight: f"{weight:g}" if weight else "none",
        key="smooth",
        help="Weight of an exponential moving average in both directions. The measured curve stays visible.",
        **shared,
    )
    return CurveOptions(x=x, loss=loss, log_x=_LOG_X in scales, clip=_HIDE_OUTLIERS in scales, smoothing=smoothing)


def draw_curves(lines: Sequence[RunLine], *, key: str, name: str) -> None:
    """Draw the controls and the curves of runs, which are exported as `name`."""
    names = ", ".join(line.name for line in lines)
    zooms: dict[tuple[str, str], tuple[float, float]] = st.session_state.setdefault("zooms of curves", {})
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        options = _controls()
        with st.popover("Export", icon=":material/download:"):
            csv = f"{name}-curves.csv"
            markup.download("CSV, every row", lambda: curves_csv(lines), csv, mime="text/csv", icon=None)
            for_print = st.toggle("For print", key="print", help="Draw on white paper and save as SVG.")
            st.caption(f"The camera above the curves saves them as {'SVG' if for_print else 'PNG'}.")
        zoomed = (names, options.x)
        is_zoomed = zoomed in zooms
        st.button("Reset zoom", icon=":material/zoom_out_map:", on_click=zooms.clear, disabled=not is_zoomed)
    theme = "light" if for_print else st.context.theme.type or "light"
    options = replace(options, zoom=zooms.get(zoomed))
    colours: Sequence[str] = st.get_option(f"theme.{theme}.chartCategoricalColors")
    chart = draw(lines, options, palette(theme), colours)

    def zoom() -> None:
        for box in st.session_state[key]["selection"]["box"]:
            low, high = sorted(box["x"])
            zooms[zoomed] = (low * chart.x_divisor, high * chart.x_divisor)

    markup.show_figure(
        chart.figure,
        key=key,
        alt=f"Training curves of {names}: {', '.join(chart.titles)}",
        name=f"{name}-curves",
        on_box=zoom,
        saved_as="svg" if for_print else "png",
    )
    st.caption(f"Drag across the curves to zoom. {chart.remark}")


_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"tokens_seen": ("num_tokens",), "step_seconds": ("step_time",)}
"""Other names of a column."""


def build_line(name: str, view: ImportedRun) -> tuple[RunLine, str]:
    """Return the curves of a run, and a text that says where its losses were read, or "" without losses."""
    rows = longest_course(view.metrics)
    evaluated = _evaluated_rows(view, rows)
    line = RunLine(
        name=name,
        series=_series(rows, "loss"),
        evaluation=_series(evaluated, "eval_loss") if evaluated else None,
        is_foreign=True,
    )
    if not (stated := rows or evaluated):
        return line, ""
    first, last = stated[0].source, stated[-1].source
    places = f", lines {first.line} to {last.line}" if first.line and last.line else ""
    return line, f"Read from {first.file}{places}."


def _series(rows: Sequence[MetricRow], loss: str) -> Series:
    """Return rows as columns, with the values of this name as the loss. Rows without steps are numbered."""
    columns = {
        name: np.array([_value(row, loss if name == "loss" else name) for row in rows]) for name in number_names()
    }
    if not np.isfinite(columns["step"]).all():
        columns["step"] = np.arange(1.0, len(rows) + 1)
    # Sources may have rows out of order.
    order = np.argsort(columns["step"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["seconds"] = np.full(len(rows), np.nan)
    return Series(columns=columns, unread=0)


def _evaluated_rows(view: ImportedRun, losses: Sequence[MetricRow]) -> list[MetricRow]:
    """Return a row with an evaluation loss for each step, if the training losses have steps.

    Only rows from the file and stage of the training losses count: another file may belong to another run.
    """
    series = loss_series(view.metrics, "eval_loss")
    longest = max(series, key=lambda one: len(series[one]), default=None)
    place = (losses[0].source.file, losses[0].stage) if losses else longest
    found: dict[float, MetricRow] = {}
    are_known = all(math.isfinite(_value(row, "step")) for row in losses)
    for row in series.get(place, []) if place and are_known else ():
        if math.isfinite(step := _value(row, "step")):
            found.setdefault(step, row)
    return list(found.values())


def _value(row: MetricRow, name: str) -> float:
    for key in (name, *_OTHER_NAMES.get(name, ())):
        value = row.values.get(key)
        if value is not None:
            return float(value)
    return math.nan
