"""Every case as a point: what was planned over what the compiler says of the whole program, in GiB, on log axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

SIZE, LEFT, TOP = 520, 60, 40
LOWEST, HIGHEST = 0.03, 40.0
COLOURS = {"closed form": "#5c6973", "few layers compiled": "#1f5b8f"}


def write_plot(points: Sequence[tuple[str, float, float]], path: Path) -> None:
    """Write the picture as SVG.

    Args:
        points: kind, planned GiB, compiled GiB.
        path: where.
    """
    parts = []
    for number, (kind, colour) in enumerate(COLOURS.items()):
        parts.append(f'<circle cx="{LEFT + 10 + number * 170}" cy="18" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 20 + number * 170}" y="22">{kind}</text>')
    for gib in (0.1, 1, 10):
        x, y = _x(gib), _y(gib)
        parts.append(f'<path d="M{x:.1f} {TOP}V{TOP + SIZE}M{LEFT} {y:.1f}H{LEFT + SIZE}" stroke="#dde3e8"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP + SIZE + 18}" text-anchor="middle">{gib:g}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{gib:g}</text>')
    for factor, dash in ((1.0, ""), (1.2, "4 4"), (1 / 1.2, "4 4")):
        low, high = (LOWEST * max(1, 1 / factor), HIGHEST / max(1, factor))
        line = f'x1="{_x(low):.1f}" y1="{_y(low * factor):.1f}" x2="{_x(high):.1f}" y2="{_y(high * factor):.1f}"'
        parts.append(f'<line {line} stroke="#8795a1" stroke-dasharray="{dash}"/>')
    for kind, planned, compiled in points:
        place = f'cx="{_x(compiled):.1f}" cy="{_y(planned):.1f}"'
        parts.append(f'<circle {place} r="4" fill="{COLOURS[kind]}" fill-opacity="0.75"/>')
    middle = TOP + SIZE / 2
    parts.append(f'<text x="{LEFT + SIZE / 2}" y="{TOP + SIZE + 36}" text-anchor="middle">compiled, GiB</text>')
    parts.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">planned, GiB</text>')
    title = "Planned against compiled memory; dashed: 20 percent off"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + SIZE + 20} {TOP + SIZE + 48}" role="img">'
        f"<title>{title}</title><style>text{{font:12px sans-serif;fill:#26313a}}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n',
        "utf-8",
    )


def _share(gib: float) -> float:
    return math.log(gib / LOWEST) / math.log(HIGHEST / LOWEST)


def _x(gib: float) -> float:
    return LEFT + SIZE * _share(gib)


def _y(gib: float) -> float:
    return TOP + SIZE * (1 - _share(gib))
