"""The figures of `benchmarks/grpo_learning.py` as a picture: each arm under each seed, one answer and one of all right.

python benchmarks/grpo_parts/learning_plot.py  # draws results/grpo_learning.svg from results/grpo_learning.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
ARMS = {
    "start": "before",
    "grpo": "GRPO",
    "rejection": "own right answers",
    "more": "more solutions",
    "shuffled": "shuffled rewards",
}
COLOURS = {"start": "#5c6973", "grpo": "#1f5b8f"}
OTHERS = "#8795a1"
LEFT, TOP, WIDTH, ROW, APART = 130, 46, 300, 52, 40


def drawn(document: Mapping[str, Any]) -> str:
    """Return the picture as SVG: a row an arm, a dot a seed, the 95 % interval over items as a line, the mean above."""
    seeds, every = document["seeds"], f"pass_{document['answers']}"
    arms = arms_of(seeds)
    parts = []
    panels = (("pass_1", "one answer is right (pass@1), %"), (every, f"one of {document['answers']} is right, %"))
    for number, (name, title) in enumerate(panels):
        left = LEFT + number * (WIDTH + APART)
        parts += axis(left, title, len(arms))
        for place, arm in enumerate(arms):
            parts += dots(left, TOP + place * ROW + ROW / 2, taken(seeds, arm), name, arm)
    for place, arm in enumerate(arms):
        y = TOP + place * ROW + ROW / 2 + 4
        parts.append(f'<text x="{LEFT - 12}" y="{y:g}" text-anchor="end">{ARMS[arm]}</text>')
    what = f"after {document['steps']} steps on {document['held_out']} held-out items, {len(seeds)} seeds"
    title = f"Learning from rewards beside its controls, {what}"
    width, height = LEFT + 2 * WIDTH + APART + 20, TOP + len(arms) * ROW + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{title}</title><style>text{{font:12px sans-serif;fill:#26313a}}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def table(document: Mapping[str, Any]) -> str:
    """Return the same figures as a table in Markdown: shares in %, gains over the start in points, means over seeds."""
    seeds, every = document["seeds"], f"pass_{document['answers']}"
    starts = taken(seeds, "start")
    lines = [
        f"| arm | seeds | pass@1 | gain (each seed) | pass@{document['answers']} | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for arm in arms_of(seeds):
        found = taken(seeds, arm)
        gains = [
            100 * (seeds[seed][arm]["pass_1"] - seeds[seed]["start"]["pass_1"]) for seed in seeds if arm in seeds[seed]
        ]
        each = "" if arm == "start" else f"{fmean(gains):+.1f} ({', '.join(f'{gain:+.1f}' for gain in gains)})"
        one, some = (100 * fmean(figures[name] for figures in found) for name in ("pass_1", every))
        seconds = fmean(figures["cpu_seconds"] for figures in found)
        lines.append(f"| {ARMS[arm]} | {len(found)} | {one:.1f} | {each} | {some:.1f} | {seconds:.0f} |")
    half = 50 * fmean(figures["pass_1_high"] - figures["pass_1_low"] for figures in starts)
    lines += ["", f"The 95 % interval over the {document['held_out']} items is ± {half:.1f} points for the start."]
    return "\n".join(lines)


def arms_of(seeds: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the arms that some seed has, in the order of the picture."""
    return [arm for arm in ARMS if any(arm in found for found in seeds.values())]


def taken(seeds: Mapping[str, Mapping[str, Any]], arm: str) -> list[Mapping[str, float]]:
    """Return an arm's figures under each seed that has it."""
    return [found[arm] for found in seeds.values() if arm in found]


def axis(left: float, title: str, rows: int) -> list[str]:
    """Return the lines and words of a panel from 0 to 100 %."""
    bottom = TOP + rows * ROW
    parts = [f'<text x="{left}" y="{TOP - 22}" font-weight="bold">{title}</text>']
    for share in (0, 25, 50, 75, 100):
        x = left + WIDTH * share / 100
        parts.append(f'<path d="M{x:g} {TOP - 8}V{bottom}" stroke="#dde3e8"/>')
        parts.append(f'<text x="{x:g}" y="{bottom + 18}" text-anchor="middle">{share}</text>')
    return parts


def dots(left: float, y: float, found: list[Mapping[str, float]], name: str, arm: str) -> list[str]:
    """Return an arm's seeds below each other, and their mean as a number."""
    colour, parts = COLOURS.get(arm, OTHERS), []
    for number, figures in enumerate(found):
        x, level = left + WIDTH * figures[name], y + 9 * (number - (len(found) - 1) / 2) + 5
        if f"{name}_low" in figures:
            low, high = (left + WIDTH * figures[f"{name}_{end}"] for end in ("low", "high"))
            parts.append(f'<path d="M{low:.1f} {level:g}H{high:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{level:g}" r="3.5" fill="{colour}"/>')
    mean = fmean(figures[name] for figures in found)
    x = left + WIDTH * mean
    parts.append(f'<text x="{x:.1f}" y="{y - 13:g}" text-anchor="middle">{100 * mean:.1f}</text>')
    return parts


def main() -> None:
    """Draw the stored result, and print its table for docs/rewards.md."""
    document = json.loads((RESULTS / "grpo_learning.json").read_text("utf-8"))
    (RESULTS / "grpo_learning.svg").write_text(drawn(document), "utf-8")
    print(table(document))


if __name__ == "__main__":
    main()
