"""The curves as SVG for print: white ground, round ticks, one legend, sharp at any size, no script.

What it shows was decided in `curves`. Lengths are in SVG user units. Every text of a run is escaped here.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.shared.charts.curves import Curve, Place, Plot, Plotted
from dashboard.shared.charts.line import Part
from evidence.bundle.report.chart import tick_text, ticks
from evidence.bundle.secrets.masking import visible

WIDTH = 860
_LEFT, _RIGHT, _TOP, _GAP, _BOTTOM = 76, 16, 34, 46, 52
_LEGEND_ROW, _LEGEND_COLUMNS, _LONGEST_NAME, _KEY = 18, 3, 32, 29
_TALL, _LOW = 240, 120
_MARK, _FIGURE_WIDTH = 7, 52
STYLE = (
    "text{font-family:'Source Sans 3','Source Sans Pro','Helvetica Neue',Arial,sans-serif;font-size:12px;fill:#26323a}"
    ".title{font-size:13px;font-weight:600}.quiet{fill:#4a5761}.grid{stroke:#e3e8eb;stroke-width:1}"
    ".axis{stroke:#5c6973;stroke-width:1;fill:none}.mark{stroke-width:1;stroke-dasharray:2 3}"
    "polyline{fill:none;stroke-linejoin:round}"
)

_STROKES: Mapping[Part, tuple[int, ...]] = {"earlier": (5, 3), "evaluation": (2, 3)}


@dataclass(frozen=True, kw_only=True)
class Reach:
    """From values to user units, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, values: np.ndarray | float) -> np.ndarray:
        """Return where values lie."""
        low, high = self._of(self.low), self._of(self.high)
        share: np.ndarray = (self._of(values) - low) / ((high - low) or 1.0)
        return self.start + share * (self.end - self.start)

    def _of(self, values: np.ndarray | float) -> np.ndarray:
        numbers: np.ndarray = np.asarray(np.log10(values) if self.log else values, dtype=np.float64)
        return numbers


def svg(plot: Plot, *, title: str) -> str:
    """Return a plot as an SVG document.

    Args:
        plot: What to draw; without panels, the document says that nothing was measured.
        title: What it shows, for readers that cannot see it.
    """
    runs = {curve.name: curve for panel in plot.panels for curve in panel.curves}
    rows = 0 if plot.single else math.ceil(len(runs) / _LEGEND_COLUMNS)
    top = _TOP + rows * _LEGEND_ROW
    scores = {place.name: _score(place) for panel in plot.panels for place in panel.scores}
    parts = [] if plot.single else list(_legend(list(runs.values()), scores))
    across = _across(plot)
    for index, panel in enumerate(plot.panels):
        height = _TALL if panel.panel.height > 150 else _LOW
        parts += _panel(panel, plot, across, top, height, is_first=index == 0, is_last=index == len(plot.panels) - 1)
        top += height + _GAP
    height = top - _GAP + _BOTTOM if plot.panels else _TOP * 2
    if not plot.panels:
        parts.append(f'<text x="{_LEFT}" y="{_TOP}">Nothing was measured.</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{safe(title)}</title><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _panel(
    panel: Plotted, plot: Plot, across: Reach, top: int, height: int, *, is_first: bool, is_last: bool
) -> Iterator[str]:
    low, high = _ends(panel)
    y_ticks = log_ticks(low, high) if panel.log else ticks(low, high, 5 if height == _TALL else 3)
    down = Reach(
        low=panel.low if panel.low is not None else min(low, y_ticks[0]),
        high=panel.high if panel.high is not None else max(high, y_ticks[-1]),
        start=top + height,
        end=top,
        log=panel.log,
    )
    yield f'<text class="title" x="0" y="{top - 12}">{safe(panel.title)}</text>'
    for tick in y_ticks:
        if down.low <= tick <= down.high:
            y = float(down.at(tick))
            text = f"{tick:g}" if panel.log else tick_text(tick, y_ticks)
            yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
            yield f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    yield f'<path class="axis" d="M{_LEFT} {top}V{top + height}H{WIDTH - _RIGHT}"/>'
    yield from _bottom(plot, across, top + height, worded=is_last)
    clip = f"panel-{panel.panel.column}"
    yield (
        f'<clipPath id="{clip}"><rect x="{_LEFT - _MARK}" y="{top - 1}" width="{WIDTH - _LEFT - _RIGHT + 2 * _MARK}" '
        f'height="{height + 2}"/></clipPath><g clip-path="url(#{clip})">'
    )
    for curve in panel.curves:
        yield from _curve(curve, across, down)
    for place in panel.resumed:
        x = float(across.at(place.x))
        yield f'<path class="mark" stroke="{safe(place.colour)}" d="M{x:.1f} {top}V{top + height}"/>'
    for place in panel.scores:
        x, y = float(across.at(place.x)), float(down.at(place.y))
        yield f'<path fill="{safe(place.colour)}" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>'
    yield "</g>"
    for place in panel.resumed if is_first else ():
        yield f'<text class="quiet" x="{float(across.at(place.x)) + 4:.1f}" y="{top + 12}">{safe(place.text)}</text>'
    # With several runs the legend says it, where no two can lie upon each other.
    yield from _figures(panel.scores, across, down) if plot.single else ()


def _figures(scores: Sequence[Place], across: Reach, down: Reach) -> Iterator[str]:
    """Yield the figures at the marks of one run, from the last on, as far as none lies upon another."""
    free = math.inf
    for place in reversed(scores):
        x, y = float(across.at(place.x)), float(down.at(place.y))
        if x > free:
            continue
        free = x - _FIGURE_WIDTH
        # A falling loss leaves room below; where the axis is near, there is some above.
        baseline = y + 20 if y + 24 < down.start else y - 10
        end = min(x + _FIGURE_WIDTH / 3, WIDTH - 2)
        yield f'<text x="{end:.1f}" y="{baseline:.1f}" text-anchor="end">{_percent(place)}</text>'


def _bottom(plot: Plot, across: Reach, y: int, *, worded: bool) -> Iterator[str]:
    whole = 1.0 if plot.x_title == "steps" else 0.0
    x_ticks = log_ticks(across.low, across.high) if across.log else ticks(across.low, across.high, 7, whole)
    for tick in x_ticks:
        if across.low <= tick <= across.high:
            x = float(across.at(tick))
            yield f'<path class="axis" d="M{x:.1f} {y}v5"/>'
            if worded:
                text = f"{tick:g}" if across.log else tick_text(tick, x_ticks)
                yield f'<text class="quiet" x="{x:.1f}" y="{y + 19}" text-anchor="middle">{text}</text>'
    if worded:
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        yield f'<text x="{middle:.1f}" y="{y + 40}" text-anchor="middle">{safe(plot.x_title)}</text>'


def _curve(curve: Curve, across: Reach, down: Reach) -> Iterator[str]:
    faint = curve.smooth is not None
    dashes, opacity_of_own = _dashes(_STROKES.get(curve.part, curve.dashes)), 0.6 if curve.part == "earlier" else 1.0
    layers = [(curve.y, 0.8 if faint else 1.4, 0.35 if faint else opacity_of_own)]
    if curve.smooth is not None:
        layers.append((curve.smooth, 1.6, opacity_of_own))
    if curve.part == "evaluation":
        for x, y in _pieces(across.at(curve.x), down.at(curve.y)):
            for a, b in zip(x.tolist(), y.tolist(), strict=True):
                yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{safe(curve.colour)}"/>'
    for values, width, opacity in layers:
        for x, y in _pieces(across.at(curve.x), down.at(values)):
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
            yield (
                f'<polyline points="{points}" stroke="{safe(curve.colour)}" stroke-width="{width}" '
                f'opacity="{opacity}"{dashes}/>'
            )


def _pieces(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the stretches of a line between its gaps."""
    good = np.isfinite(x) & np.isfinite(y)
    for piece in np.split(np.arange(len(x)), np.nonzero(np.diff(good))[0] + 1):
        if len(piece) and good[piece[0]]:
            yield x[piece], y[piece]


def _score(place: Place) -> str:
    return f"{place.text} {_percent(place)}"


def _percent(place: Place) -> str:
    return f"{100 * (place.score or 0.0):.1f} %"


def _dashes(lengths: Sequence[int]) -> str:
    return f' stroke-dasharray="{" ".join(map(str, lengths))}"' if lengths else ""


def _legend(runs: Sequence[Curve], scores: Mapping[str, str]) -> Iterator[str]:
    width = (WIDTH - _RIGHT) / _LEGEND_COLUMNS
    for index, run in enumerate(runs):
        row, column = divmod(index, _LEGEND_COLUMNS)
        x, y = column * width, 10 + row * _LEGEND_ROW
        text = safe(_cut(run.name, _LONGEST_NAME if run.name not in scores else _LONGEST_NAME - 12))
        if run.name in scores:
            text += f'<tspan class="quiet"> ◆ {safe(scores[run.name])}</tspan>'
        yield f'<path stroke="{safe(run.colour)}" stroke-width="2"{_dashes(run.dashes)} d="M{x:.0f} {y}h{_KEY}"/>'
        yield f'<text x="{x + _KEY + 6:.0f}" y="{y + 4}">{text}</text>'


def _cut(name: str, length: int) -> str:
    """Return a name with its middle left out where it is too long: names of runs differ at their ends."""
    head = length // 2
    return name if len(name) <= length else f"{name[:head]}…{name[head + 1 - length :]}"


def _across(plot: Plot) -> Reach:
    low, high = _extremes([curve.x for panel in plot.panels for curve in panel.curves])
    return Reach(low=low, high=high, start=_LEFT, end=WIDTH - _RIGHT, log=plot.log_x)


def _ends(panel: Plotted) -> tuple[float, float]:
    if panel.low is not None and panel.high is not None:
        return panel.low, panel.high
    return _extremes([curve.y for curve in panel.curves])


def _extremes(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    finite = [array[np.isfinite(array)] for array in arrays]
    finite = [array for array in finite if len(array)]
    if not finite:
        return 1.0, 2.0
    return min(float(array.min()) for array in finite), max(float(array.max()) for array in finite)


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten that enclose a range, with their twofold and fivefold where there are few of them."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    wide = sum(low <= power <= high for power in powers) > 2
    found = powers if wide else [factor * power for power in powers for factor in (1, 2, 5)]
    first = max((tick for tick in found if tick <= low), default=found[0])
    last = min((tick for tick in found if tick >= high), default=found[-1])
    return [tick for tick in found if first <= tick <= last]


def safe(text: str) -> str:
    """Return text as XML that shows it as it stands."""
    return html.escape(visible(text), quote=True)
