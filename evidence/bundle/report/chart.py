"""Line plots and intervals as inline SVG: no script, no network, sharp in print.

Colours come from the page through CSS classes; lengths are in SVG user units.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

WIDTH, HEIGHT = 680, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46
MOST_DOTS = 40
"""Series of at most so many points show each of them."""
MOST_POINTS = 1200
"""Points drawn at most; beyond, each bucket of neighbours gives its smallest and largest, so that spikes stay."""

Point = tuple[float, float | None]


def line_plot(points: Sequence[Point], *, x_label: str, y_label: str, title: str, whole_x: bool) -> str:
    """Return an SVG line plot.

    Args:
        points: x and y in order of x; a y of None leaves a gap. At least one y is a number.
        x_label: What x is, with its unit.
        y_label: What y is, with its unit.
        title: What the plot shows, for readers that cannot see it.
        whole_x: Whether x counts things, so that no tick stands between whole numbers.
    """
    values = [y for _, y in points if y is not None]
    x_ticks = ticks(points[0][0], points[-1][0], 7, smallest=1.0 if whole_x else 0.0)
    y_ticks = ticks(min(values), max(values), 5)
    low_x, high_x = min(x_ticks[0], points[0][0]), max(x_ticks[-1], points[-1][0])
    low_y, high_y = y_ticks[0], y_ticks[-1]

    def across(x: float) -> float:
        return LEFT + (x - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" class="plot"><title>{html.escape(title)}</title>',
        *(_horizontal(down(tick), tick_text(tick, y_ticks)) for tick in y_ticks),
        *(_vertical(across(tick), tick_text(tick, x_ticks)) for tick in x_ticks),
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
        _label(f'x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 8}"', x_label),
        _label(f'transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.1f}) rotate(-90)"', y_label),
        *(_piece([(across(x), down(y)) for x, y in piece]) for piece in _pieces(thin(points))),
        *(_dot(across(x), down(y)) for x, y in points if y is not None and len(points) <= MOST_DOTS),
        "</svg>",
    ]
    return "".join(parts)


def interval_bar(value: float, low: float, high: float, *, title: str) -> str:
    """Return a small SVG of a share and its interval on a scale from 0 to 1."""
    left, right = 2 + low * 156, 2 + high * 156
    return (
        f'<svg viewBox="0 0 160 14" role="img" class="interval"><title>{html.escape(title)}</title>'
        '<path class="grid" d="M2 7H158M2 3V11M41 5V9M80 3V11M119 5V9M158 3V11"/>'
        f'<path class="whisker" d="M{left:.1f} 7H{right:.1f}M{left:.1f} 4V10M{right:.1f} 4V10"/>'
        f'<circle class="dot" cx="{2 + value * 156:.1f}" cy="7" r="3"/></svg>'
    )


def ticks(low: float, high: float, about: int, smallest: float = 0.0) -> list[float]:
    """Return round numbers 1, 2 or 5 × 10ⁿ apart that enclose low and high: `(0.3, 3.9, 5)` gives 0, 1, 2, 3, 4.

    A range of no width gets ticks on both sides of it; neighbours are never closer than `smallest`.
    """
    if low == high:
        margin = smallest or abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    rough = max((high - low) / about, smallest)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def tick_text(tick: float, all_ticks: Sequence[float]) -> str:
    """Return a tick with as many decimals as its distance to the next one needs."""
    step = all_ticks[1] - all_ticks[0]
    largest = max(abs(each) for each in all_ticks)
    if largest >= 1e7 or step < 1e-5:
        return f"{tick:.6g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{tick + 0.0:,.{decimals}f}"


def thin(points: Sequence[Point]) -> list[Point]:
    """Return at most `MOST_POINTS` points that show the same shape, spikes and gaps included."""
    if len(points) <= MOST_POINTS:
        return list(points)
    # A piece gives its lowest, its highest and, where it has one, a gap.
    has_gaps = any(value is None for _, value in points)
    size = math.ceil(len(points) / (MOST_POINTS // (3 if has_gaps else 2)))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        numbers = [point for point in bucket if point[1] is not None]
        if len(numbers) < len(bucket):
            kept.append(next(point for point in bucket if point[1] is None))
        if numbers:
            extremes = {
                min(numbers, key=lambda point: point[1] or 0.0),
                max(numbers, key=lambda point: point[1] or 0.0),
            }
            kept += sorted(extremes)
    return sorted(kept, key=lambda point: point[0])


def _pieces(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    """Yield runs of points between gaps."""
    piece: list[tuple[float, float]] = []
    for x, y in points:
        if y is not None:
            piece.append((x, y))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _piece(points: Sequence[tuple[float, float]]) -> str:
    if len(points) == 1:
        return _dot(*points[0])
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="line" points="{line}"/>'


def _dot(x: float, y: float) -> str:
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'


def _horizontal(y: float, text: str) -> str:
    return (
        f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    )


def _vertical(x: float, text: str) -> str:
    return (
        f'<path class="axis" d="M{x:.1f} {HEIGHT - BOTTOM}v5"/>'
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">{text}</text>'
    )


def _label(place: str, label: str) -> str:
    return f'<text class="label" {place} text-anchor="middle">{html.escape(label)}</text>'
