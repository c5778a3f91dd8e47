"""Many runs in one picture, as SVG for print: a scatter of two names, or parallel coordinates of several."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dashboard.logic.curves_svg import STYLE, WIDTH, Reach, log_ticks, safe
from dashboard.logic.relation import Scale
from dashboard.logic.text import shortened
from evidence.bundle.chart import tick_text, ticks

HEIGHT = 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 24, 40, 56
_LONGEST = 22


def scatter_svg(x: Scale, y: Scale, *, colour: str, title: str) -> str:
    """Return a scatter; a run that does not state both names is left out."""
    across, down = _reach(x, _LEFT, WIDTH - _RIGHT), _reach(y, HEIGHT - _BOTTOM, _TOP)
    parts = [f'<path class="axis" d="M{_LEFT} {_TOP}V{HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>']
    for place, text in _ticks(y, across=False):
        level = float(down.at(place))
        parts.append(f'<path class="grid" d="M{_LEFT} {level:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{text}</text>')
    for place, text in _ticks(x, across=True):
        at = float(across.at(place))
        parts.append(f'<path class="axis" d="M{at:.1f} {HEIGHT - _BOTTOM}v5"/>')
        parts.append(f'<text class="quiet" x="{at:.1f}" y="{HEIGHT - _BOTTOM + 19}" text-anchor="middle">{text}</text>')
    parts += [
        f'<circle cx="{float(across.at(a)):.1f}" cy="{float(down.at(b)):.1f}" r="3.5" fill="{safe(colour)}" '
        'fill-opacity="0.75"/>'
        for a, b in zip(x.places, y.places, strict=True)
        if a is not None and b is not None
    ]
    parts.append(f'<text class="title" x="0" y="{_TOP - 16}">{safe(y.name)}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{safe(x.name)}</text>')
    return _document(parts, title)


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
    return _document(parts, title)


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


def _document(parts: Sequence[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>{safe(title)}</title><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
