"""Collect scores and times from finished runs of `demo.yaml` and `demo_lora.yaml`.

    python benchmarks/demo.py submission_runs/demo-full submission_runs/first-lora [further runs with other seeds]

Every figure is read from a run that is graded verified, consistent or measured; others are refused. Writes
benchmarks/results/demo.json.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness import spread, write_json

from evidence.grade import check_run
from evidence.run import read_run

FIGURES = ("train_seconds", "exact_match_percent", "arithmetic_percent")


def read_figures(folder: Path) -> dict[str, Any]:
    """Read the figures of a run."""
    run = read_run(folder)
    grade = check_run(run).grade.name
    if grade not in ("verified", "consistent", "measured") or run.manifest is None or run.eval_summary is None:
        message = f"{folder} is graded {grade}; its figures are not used."
        raise SystemExit(message)
    summary, manifest = run.eval_summary, run.manifest
    arithmetic = summary["groups"]["category"].get("arithmetic")
    return {
        "run": folder.name,
        "method": manifest["training"]["method"],
        "eval_set": summary["eval_set"]["name"],
        "grade": grade,
        "commit": manifest["code"]["commit"],
        "seed": manifest["training"]["seed"],
        "steps": manifest["training"]["steps_done"],
        "tokens": manifest["result"]["tokens_seen"],
        "train_seconds": manifest["result"]["train_seconds"],
        "exact_match_percent": 100 * summary["metrics"]["exact_match"]["value"],
        "arithmetic_percent": arithmetic and 100 * arithmetic["exact_match"]["value"],
        "baseline_percent": 100 * summary["baseline"]["metrics"]["exact_match"]["value"],
        "parameters": manifest["model"]["parameters"],
        "environment": manifest["environment"],
    }


def summarize(runs: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Return baseline, minimum, median and maximum of each figure, and every run."""
    figures = {name: spread([run[name] for run in runs], 3) for name in names}
    print(runs[0]["method"], figures)
    rows = [{key: value for key, value in run.items() if key != "environment"} for run in runs]
    return {"baseline_percent": max(run["baseline_percent"] for run in runs), **figures, "runs": rows}


def main() -> None:
    """Collect, print and write."""
    runs = [read_figures(Path(name)) for name in sys.argv[1:]]
    full, lora = ([run for run in runs if run["method"] == method] for method in ("full", "lora"))
    if not full or not lora:
        raise SystemExit(__doc__)
    result = {
        "machine": full[0]["environment"],
        "parameters_millions": full[0]["parameters"] / 1e6,
        **summarize(full, FIGURES),
        "lora": {"machine": lora[0]["environment"], **summarize(lora, FIGURES[:2])},
    }
    write_json("demo.json", result)


if __name__ == "__main__":
    main()
