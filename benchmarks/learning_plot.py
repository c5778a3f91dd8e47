"""Draw results/grpo_learning.svg from results/grpo_learning.json and print the table of docs/rewards.md.

python benchmarks/learning_plot.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path(__file__).parent / "results"
ARMS = {
    "start": "before",
    "grpo": "GRPO",
    "rejection": "own right answers",
    "more": "more solutions",
    "shuffled": "shuffled rewards",
}
COLOURS = {"start": "#5c6973", "grpo": "#1f5b8f"}
LEFT, TOP, WIDTH, ROW, GAP = 130, 46, 300, 52, 40


def draw(document: Mapping[str, Any]) -> str:
    """Return an SVG with a row per arm and a dot per seed, with 95 % intervals over items and the mean as a number."""
    seeds, best = document["seeds"], f"pass_{document['answers']}"
    arms = figures_by_arm(seeds)
    bottom, parts = TOP + len(arms) * ROW, []
    panels = (("pass_1", "one answer is right (pass@1), %"), (best, f"one of {document['answers']} is right, %"))
    for left, (metric, title) in zip((LEFT, LEFT + WIDTH + GAP), panels, strict=True):
        parts.append(f'<text x="{left}" y="{TOP - 22}" font-weight="bold">{title}</text>')
        for percent in (0, 25, 50, 75, 100):
            x = left + WIDTH * percent / 100
            parts.append(f'<path d="M{x:g} {TOP - 8}V{bottom}" stroke="#dde3e8"/>')
            parts.append(f'<text x="{x:g}" y="{bottom + 18}" text-anchor="middle">{percent}</text>')
        for row, (arm, figures) in enumerate(arms.items()):
            colour, middle = COLOURS.get(arm, "#8795a1"), TOP + row * ROW + ROW / 2
            for number, one in enumerate(figures):
                y = middle + 9 * (number - (len(figures) - 1) / 2) + 5
                if f"{metric}_low" in one:
                    low, high = (left + WIDTH * one[f"{metric}_{end}"] for end in ("low", "high"))
                    parts.append(f'<path d="M{low:.1f} {y:g}H{high:.1f}" stroke="{colour}"/>')
                parts.append(f'<circle cx="{left + WIDTH * one[metric]:.1f}" cy="{y:g}" r="3.5" fill="{colour}"/>')
            mean = fmean(one[metric] for one in figures)
            x = left + WIDTH * mean
            parts.append(f'<text x="{x:.1f}" y="{middle - 13:g}" text-anchor="middle">{100 * mean:.1f}</text>')
    for row, arm in enumerate(arms):
        y = TOP + row * ROW + ROW / 2 + 4
        parts.append(f'<text x="{LEFT - 12}" y="{y:g}" text-anchor="end">{ARMS[arm]}</text>')
    size = f"after {document['steps']} steps on {document['held_out']} held-out items, {len(seeds)} seeds"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + 2 * WIDTH + GAP + 20} {bottom + 34}" role="img">'
        f"<title>Learning from rewards beside its controls, {size}</title>"
        "<style>text{font:12px sans-serif;fill:#26313a}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def format_table(document: Mapping[str, Any]) -> str:
    """Return the figures as Markdown: percentages, and gains over the start in points."""
    seeds, answers = document["seeds"], document["answers"]
    arms = figures_by_arm(seeds)
    lines = [f"| arm | seeds | pass@1 | gain (each seed) | pass@{answers} | CPU s |", "|---|---|---|---|---|---|"]
    for arm, figures in arms.items():
        gains = [100 * (found[arm]["pass_1"] - found["start"]["pass_1"]) for found in seeds.values() if arm in found]
        gain = "" if arm == "start" else f"{fmean(gains):+.1f} ({', '.join(f'{each:+.1f}' for each in gains)})"
        one, best = (100 * fmean(each[name] for each in figures) for name in ("pass_1", f"pass_{answers}"))
        seconds = fmean(each["cpu_seconds"] for each in figures)
        lines.append(f"| {ARMS[arm]} | {len(figures)} | {one:.1f} | {gain} | {best:.1f} | {seconds:.0f} |")
    half = 50 * fmean(each["pass_1_high"] - each["pass_1_low"] for each in arms["start"])
    lines += ["", f"The 95 % interval over the {document['held_out']} items is ± {half:.1f} points for the start."]
    return "\n".join(lines)


def figures_by_arm(seeds: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    """Return the figures of all seeds for each arm that was run, in the order of `ARMS`."""
    arms = {arm: [found[arm] for found in seeds.values() if arm in found] for arm in ARMS}
    return {arm: figures for arm, figures in arms.items() if figures}


if __name__ == "__main__":
    result = json.loads((RESULTS / "grpo_learning.json").read_text("utf-8"))
    (RESULTS / "grpo_learning.svg").write_text(draw(result), "utf-8")
    print(format_table(result))
