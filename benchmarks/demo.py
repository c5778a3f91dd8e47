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
from trainer.recorder.environment import environment


def read_figures(folder: Path) -> dict[str, Any]:
    """Read the figures of a run."""
    run = read_run(folder)
    grade = check_run(run).grade.name
    if grade not in ("verified", "consistent", "measured") or run.manifest is None or run.eval_summary is None:
        message = f"{folder} is graded {grade}; its figures are not used."
        raise SystemExit(message)
    summary, training, result = run.eval_summary, run.manifest["training"], run.manifest["result"]
    return {
        "run": folder.name,
        "method": training["method"],
        "grade": grade,
        "commit": run.manifest["code"]["commit"],
        "seed": training["seed"],
        "steps": training["steps_done"],
        "train_seconds": result["train_seconds"],
        "exact_match_percent": 100 * summary["metrics"]["exact_match"]["value"],
        "baseline_percent": 100 * summary["baseline"]["metrics"]["exact_match"]["value"],
        "parameters_millions": run.manifest["model"]["parameters"] / 1e6,
    }


def summarize(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the spread of time and score, and every run."""
    figures = {name: spread([run[name] for run in runs], 3) for name in ("train_seconds", "exact_match_percent")}
    print(runs[0]["method"], figures)
    return {"baseline_percent": max(run["baseline_percent"] for run in runs), **figures, "runs": runs}


def main() -> None:
    """Collect, print and write."""
    runs = [read_figures(Path(name)) for name in sys.argv[1:]]
    full, lora = ([run for run in runs if run["method"] == method] for method in ("full", "lora"))
    if not full or not lora:
        raise SystemExit(__doc__)
    sizes = {"parameters_millions": full[0]["parameters_millions"]}
    write_json("demo.json", {"machine": environment(), **sizes, **summarize(full), "lora": summarize(lora)})


if __name__ == "__main__":
    main()
