"""Many runs in one picture, as SVG for print: a scatter of two names, or parallel coordinates of several."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dashboard.shared.charts.svg import STYLE, WIDTH, Reach, log_ticks, safe
from dashboard.shared.words.text import shortened
from dashboard.views.compare.logic.relation import Scale
from dashboard.views.compare.logic.scatter import Scatter, symbol_of
from evidence.bundle.report.chart import tick_text, ticks

HEIGHT = 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 24, 40, 56
_LONGEST = 22
_LEGEND_ROW, _LEGEND_COLUMNS, _LONGEST_TITLE = 18, 3, 38
_OPACITY = 0.8
_SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "diamond": "M0 -5l5 5l-5 5l-5 -5z",
    "rect": "M-3.5 -3.5h7v7h-7z",
    "triangle": "M0 -4.5l4.5 8h-9z",
}


def scatter_svg(shown: Scatter, colours: Sequence[str], *, title: str) -> str:
    """Return a scatter as it is on the screen, for white paper; without points, it says that no run has one.

    Args:
        shown: What it shows.
        colours: A colour for each group.
        title: What it is, for readers that cannot see it.
    """
    drawn = [index for _, members in shown.members for index in members]
    if not drawn:
        return _document([f'<text x="{_LEFT}" y="{_TOP}">No run has a point.</text>'], title, HEIGHT)
    legend_pixels = _LEGEND_ROW * math.ceil(len(shown.members) / _LEGEND_COLUMNS) if shown.groups else 0
    top, bottom = _TOP + legend_pixels, HEIGHT + legend_pixels - _BOTTOM
    x, y = (replace(scale, places=tuple(scale.places[index] for index in drawn)) for scale in (shown.x, shown.y))
    log_x, log_y = x.name in shown.logarithmic, y.name in shown.logarithmic
    across, down = _reach(x, _LEFT, WIDTH - _RIGHT, log=log_x), _reach(y, bottom, top, log=log_y)
    parts = [
        *(_legend(shown, colours) if shown.groups else ()),
        *_left(_ticks(y, across=False, log=log_y), down),
        *_below(_ticks(x, across=True, log=log_x), across, bottom),
        f'<path class="axis" d="M{_LEFT} {top}V{bottom}H{WIDTH - _RIGHT}"/>',
        *_points(shown, across, down, colours),
        f'<text class="title" x="0" y="{top - 16}">{safe(y.name)}</text>',
        f'<text x="{WIDTH / 2}" y="{bottom + _BOTTOM - 12}" text-anchor="middle">{safe(x.name)}</text>',
    ]
    return _document(parts, title, HEIGHT + legend_pixels)


def parallel_svg(scales: Sequence[Scale], *, colour: str, chosen: Collection[int], title: str) -> str:
    """Return parallel coordinates; chosen runs are drawn thick."""
    gap = (WIDTH - _LEFT - _RIGHT - 70) / max(1, len(scales) - 1)
    reaches = [_reach(scale, HEIGHT - _BOTTOM, _TOP + 20, log=scale.is_wide) for scale in scales]
    parts = []
    for index in sorted(range(len(scales[0].places)), key=lambda run: run in chosen):
        places = [scale.places[index] for scale in scales]
        points = [
            f"{_LEFT + gap * number:.1f},{float(reach.at(place)):.1f}"
            for number, (reach, place) in enumerate(zip(reaches, places, strict=True))
            if place is not None
        ]
        width, opacity = (2.2, 1.0) if index in chosen else (0.8, 0.4)
        parts.append(
            f'<polyline points="{" ".join(points)}" stroke="{safe(colour)}" stroke-width="{width}" '
            f'opacity="{opacity}"/>'
        )
    for number, (scale, reach) in enumerate(zip(scales, reaches, strict=True)):
        parts += _upright(scale, reach, _LEFT + gap * number, _TOP - 12 + 14 * (number % 2))
    return _document(parts, title, HEIGHT)


def _left(ticks: Iterable[tuple[float, str]], down: Reach) -> Iterator[str]:
    for place, text in ticks:
        y = float(down.at(place))
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _below(ticks: Iterable[tuple[float, str]], across: Reach, y: int) -> Iterator[str]:
    for place, text in ticks:
        x = float(across.at(place))
        yield f'<path class="axis" d="M{x:.1f} {y}v5"/>'
        yield f'<text class="quiet" x="{x:.1f}" y="{y + 19}" text-anchor="middle">{text}</text>'


def _points(shown: Scatter, across: Reach, down: Reach, colours: Sequence[str]) -> Iterator[str]:
    for number, (_, members) in enumerate(shown.members):
        for x, y in ((shown.x.places[index], shown.y.places[index]) for index in members):
            if x is not None and y is not None:
                yield _symbol("point", number, float(across.at(x)), float(down.at(y)), colours[number])


def _legend(shown: Scatter, colours: Sequence[str]) -> Iterator[str]:
    for number, (word, _) in enumerate(shown.members):
        row, column = divmod(number, _LEGEND_COLUMNS)
        x, y = 8 + column * WIDTH / _LEGEND_COLUMNS, 10 + row * _LEGEND_ROW
        yield _symbol("key", number, x, y, colours[number])
        yield f'<text x="{x + 12:.0f}" y="{y + 4}">{safe(shortened(shown.title_of(word), _LONGEST_TITLE))}</text>'


def _symbol(kind: str, number: int, x: float, y: float, colour: str) -> str:
    """Return the sign of a group, the same as on the screen."""
    name = symbol_of(number)
    shape = _SHAPES[name.removeprefix("empty").lower()]
    ink = safe(colour)
    paint = f'fill="{ink}"' if name in _SHAPES else f'fill="#fff" stroke="{ink}" stroke-width="1.4"'
    return (
        f'<path class="{kind}" transform="translate({x:.1f} {y:.1f})" d="{shape}" {paint} fill-opacity="{_OPACITY}"/>'
    )


def _upright(scale: Scale, reach: Reach, x: float, top: int) -> Iterator[str]:
    yield f'<path class="axis" d="M{x:.1f} {_TOP + 20}V{HEIGHT - _BOTTOM}"/>'
    yield (
        f'<text class="title" x="{x:.1f}" y="{top}" text-anchor="middle">{safe(shortened(scale.name, _LONGEST))}</text>'
    )
    for place, text in _ticks(scale, across=False, log=scale.is_wide):
        level = float(reach.at(place))
        yield f'<path class="axis" d="M{x:.1f} {level:.1f}h5"/>'
        yield f'<text class="quiet" x="{x + 8:.1f}" y="{level + 4:.1f}">{text}</text>'


def _reach(scale: Scale, start: float, end: float, *, log: bool = False) -> Reach:
    """Return how far an axis goes: to the ticks around its values, or half a place beyond its words."""
    if scale.words:
        return Reach(low=-0.5, high=len(scale.words) - 0.5, start=start, end=end, log=False)
    around = log_ticks(*_ends(scale)) if log else _around(scale)
    return Reach(low=around[0], high=around[-1], start=start, end=end, log=log)


def _ticks(scale: Scale, *, across: bool, log: bool = False) -> Iterator[tuple[float, str]]:
    if scale.words:
        longest = _LONGEST // 2 if across else _LONGEST
        yield from ((float(index), safe(shortened(word, longest))) for index, word in enumerate(scale.words))
        return
    if log:
        yield from ((tick, f"{tick:g}") for tick in log_ticks(*_ends(scale)))
        return
    around = _around(scale)
    yield from ((tick, tick_text(tick, around)) for tick in around)


def _around(scale: Scale) -> list[float]:
    return ticks(*_ends(scale), 6)


def _ends(scale: Scale) -> tuple[float, float]:
    stated = [place for place in scale.places if place is not None] or [0.0]
    return min(stated), max(stated)


def _document(parts: Sequence[str], title: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{safe(title)}</title><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
