"""What the demo model reaches and how long it takes, gathered from finished runs of `trainer/configs/demo.yaml`.

Every figure comes from the runs' own evidence, so it can be traced; runs that are not graded verified or measured are
refused. Writes benchmarks/results/demo.json.

    python benchmarks/demo.py submission_runs/demo-full [more runs, of other seeds]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run

RESULT = Path(__file__).parent / "results" / "demo.json"


def figures_of(folder: Path) -> dict[str, Any]:
    """Return the figures of one run."""
    run = read_run(folder)
    grade = report_of(run).grade.name
    if grade not in ("verified", "measured") or run.manifest is None or run.eval_summary is None:
        message = f"{folder} is {grade}; its figures are no results"
        raise SystemExit(message)
    summary, manifest = run.eval_summary, run.manifest
    return {
        "run": folder.name,
        "grade": grade,
        "commit": manifest["code"]["commit"],
        "seed": manifest["training"]["seed"],
        "steps": manifest["training"]["steps_done"],
        "tokens": manifest["result"]["tokens_seen"],
        "train_seconds": manifest["result"]["train_seconds"],
        "exact_match_percent": 100 * summary["metrics"]["exact_match"]["value"],
        "arithmetic_percent": 100 * summary["groups"]["category"]["arithmetic"]["exact_match"]["value"],
        "baseline_percent": 100 * summary["baseline"]["metrics"]["exact_match"]["value"],
        "parameters": manifest["model"]["parameters"],
        "environment": manifest["environment"],
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return the smallest, the middle and the largest value."""
    return {"min": min(values), "median": median(values), "max": max(values)}


def main() -> None:
    """Gather, print, write."""
    runs = [figures_of(Path(name)) for name in sys.argv[1:]]
    if not runs:
        raise SystemExit(__doc__)
    result = {
        "machine": runs[0]["environment"],
        "parameters_millions": runs[0]["parameters"] / 1e6,
        "baseline_percent": max(run["baseline_percent"] for run in runs),
        **{name: spread([run[name] for run in runs]) for name in FIGURES},
        "runs": [{key: value for key, value in run.items() if key != "environment"} for run in runs],
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for name in FIGURES:
        print(f"{name:<20} {result[name]['min']:8.1f} {result[name]['median']:8.1f} {result[name]['max']:8.1f}")


FIGURES = ("train_seconds", "exact_match_percent", "arithmetic_percent")

if __name__ == "__main__":
    main()
