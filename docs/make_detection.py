"""Writes docs/detection.md from benchmarks/results/rules.json: `python docs/make_detection.py`; a test compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "rules.json"
PAGE = Path(__file__).parent / "detection.md"


def page() -> str:
    """Return the text of docs/detection.md."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    cases, times = result["cases"], result["cases"]["check_milliseconds"]
    lines = [
        "# What is found, and what is not",
        "",
        "Measured by `benchmarks/rules.py`; this page is made from its result by `docs/make_detection.py`.",
        "What each code means stands in [rules.md](rules.md).",
        "",
        "## Named changes of a valid run",
        "",
        f"{cases['found']} of {cases['broken']} changes are found. Of {cases['valid']} valid runs,",
        f"{cases['valid_with_findings']} have a finding.",
        f"A check takes {times['median']:.0f} ms (half of them {times['from']:.0f} to {times['to']:.0f} ms).",
        "",
        "| change | found by |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {', '.join(codes)} |" for name, codes in cases["codes"].items()),
        "",
        "## Every value of real runs, changed by a forger who makes all hashes fit",
        "",
        "Each value of each document, and of the first, middle and last row, is made another value of its kind, null,",
        "or removed; rows are moved and files removed. Then every hash is computed anew, the seal included.",
        "What is found then is found because two places state the same fact.",
        "",
        "| run | changes | found | rate |",
        "|---|---|---|---|",
    ]
    for name, swept in result["real_runs"].items():
        lines.append(f"| `{name}` | {swept['changes']:,} | {swept['found']:,} | {100 * swept['rate']:.1f} % |")
    lines += ["", "Found nowhere, since nothing else in the folder states it (`*` is any row or position):", ""]
    lines += [f"- `{place}`: {', '.join(what)}" for place, what in sorted(unseen(result).items())]
    return "\n".join(lines) + "\n"


def unseen(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return the kinds of change that are found in none of the runs, by place."""
    places: dict[str, set[str]] = {}
    for swept in result["real_runs"].values():
        for place, what in swept["found_nowhere"].items():
            places.setdefault(place, set()).update(what)
    return {place: sorted(what) for place, what in places.items()}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
