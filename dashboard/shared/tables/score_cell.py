"""A score as a small picture for a cell: its figure, and its interval on a line from 0 to 100 %."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

_WIDTH, _HEIGHT = 148, 26
_LEFT, _RIGHT = 62.0, 142.0
"""Ends of the line, in pixels."""
_MIDDLE = _HEIGHT / 2


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A score from 0 to 1 with the ends of its interval and that of the untrained model, as far as they are stated."""

    score: float
    low: float | None
    high: float | None
    untrained: float | None
    is_sound: bool

    def __str__(self) -> str:
        ends = "" if self.low is None or self.high is None else f" ({100 * self.low:.1f}–{100 * self.high:.1f} %)"
        return f"{100 * self.score:.1f} %{ends}{'' if self.is_sound else ', contradictory'}"


INK: Mapping[str, tuple[str, str, str, str]] = {
    "light": ("#111920", "#1f5b8f", "#c9d1d6", "#6b7780"),
    "dark": ("#e4e9ec", "#7fb4e3", "#46525b", "#8f9ba4"),
}
"""Of a theme: figure, dot, line, and all of it where the run contradicts itself."""


def picture(found: Interval, theme: str | None) -> str:
    """Return the picture as an address that a browser draws; a score of a contradictory run is pale and struck out.

    Its beginning is the score in words, by which a click on the column's title sorts.
    """
    figure, dot, line, pale = INK.get(theme or "", INK["light"])
    if not found.is_sound:
        figure = dot = pale
    parts = [_line(0.0, 1.0, line, 1)]
    if found.untrained is not None:
        parts.append(_dot(found.untrained, "none", line, 3))
    if found.low is not None and found.high is not None:
        parts.append(_line(found.low, found.high, dot, 7, opacity=0.4))
    parts.append(_dot(found.score, dot, dot, 3))
    struck = "" if found.is_sound else ' text-decoration="line-through"'
    words = f'<text x="52" y="17.5" text-anchor="end" fill="{figure}"{struck}>{100 * found.score:.1f} %</text>'
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">{words}'
        f"{''.join(parts)}</svg>"
    )
    return f"data:image/svg+xml;score={found.score:.6f},{quote(svg)}"


def _x(share: float) -> float:
    return round(_LEFT + min(1.0, max(0.0, share)) * (_RIGHT - _LEFT), 1)


def _line(start: float, end: float, colour: str, width: float, opacity: float = 1) -> str:
    ends = f'x1="{_x(start)}" x2="{_x(end)}" y1="{_MIDDLE}" y2="{_MIDDLE}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}" opacity="{opacity}"/>'


def _dot(share: float, fill: str, colour: str, radius: float) -> str:
    return f'<circle cx="{_x(share)}" cy="{_MIDDLE}" r="{radius}" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
