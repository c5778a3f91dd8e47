"""The measured seconds as a chart: one row of bars for each wait, one bar for each tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Seconds = Mapping[str, Mapping[str, Mapping[str, float]]]

WAITS = {
    "start": "server start",
    "first_visit": "list, first visit of all",
    "list_cold": "list, new browser",
    "list_warm": "list, again",
    "compare_cold": "ten curves, first time",
    "compare_click": "ten curves, from the click",
    "compare_warm": "ten curves, by their link",
    "long_click": "a million rows",
}
TITLES = {"floor": "Streamlit's floor", "trainproof": "trainproof", "tensorboard": "TensorBoard", "mlflow": "MLflow"}
COLOURS = ("#5c6973", "#1f5b8f", "#c0721d", "#8a4a9e")
LEFT, WIDTH, BAR, GAP = 190, 620, 11, 14


def write_plot(seconds: Seconds, path: Path, runs: int = 2000) -> None:
    """Write the chart of one size of corpus as SVG."""
    tools = [name for name in seconds if name.endswith(f"_{runs}") or name == "floor"]
    longest = max(seconds[tool][wait]["median"] for tool in tools for wait in WAITS if wait in seconds[tool])
    scale = (WIDTH - LEFT - 60) / longest
    parts, top = [], 46
    for number, tool in enumerate(tools):
        x = LEFT + number * 140
        parts.append(f'<rect x="{x}" y="14" width="10" height="10" fill="{COLOURS[number % 4]}"/>')
        parts.append(f'<text x="{x + 15}" y="23">{TITLES[tool.partition("_")[0]]}</text>')
    for wait, title in WAITS.items():
        measured = [(number, seconds[tool][wait]) for number, tool in enumerate(tools) if wait in seconds[tool]]
        if not measured:
            continue
        middle = top + len(measured) * BAR / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{title}</text>')
        for number, one in measured:
            width = max(1.0, one["median"] * scale)
            parts.append(
                f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[number % 4]}"/>'
            )
            parts.append(f'<text x="{LEFT + width + 5:.1f}" y="{top + 9}" class="n">{one["median"]:.1f} s</text>')
            top += BAR
        top += GAP
    style = "text{font:12px sans-serif;fill:#26313a}.n{font-size:10px;fill:#525f69}"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 140} {top}" role="img">'
        f"<title>Seconds a reader waits, {runs:,} runs</title><style>{style}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n',
        "utf-8",
    )
