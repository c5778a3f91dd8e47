"""What the demo's runs reach and how long they take, gathered from finished runs of `demo.yaml` and `demo_lora.yaml`.

Every figure comes from the runs' own evidence, so it can be traced; runs that are not graded verified, consistent or
measured are refused. LoRA runs are told by their manifest and gathered apart. Writes benchmarks/results/demo.json.

    python benchmarks/demo.py submission_runs/demo-full submission_runs/first-lora [more runs, of other seeds]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from evidence.grade import check_run
from evidence.run import read_run

RESULT = Path(__file__).parent / "results" / "demo.json"


def figures_of(folder: Path) -> dict[str, Any]:
    """Return the figures of one run."""
    run = read_run(folder)
    grade = check_run(run).grade.name
    if grade not in ("verified", "consistent", "measured") or run.manifest is None or run.eval_summary is None:
        message = f"{folder} is {grade}; its figures are no results"
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


def spread(values: list[float]) -> dict[str, float]:
    """Return the smallest, the middle and the largest value."""
    return {"min": min(values), "median": median(values), "max": max(values)}


def gathered(runs: list[dict[str, Any]], figures: tuple[str, ...]) -> dict[str, Any]:
    """Return the figures of runs of one configuration: baseline, the spread of each, and every run."""
    return {
        "baseline_percent": max(run["baseline_percent"] for run in runs),
        **{name: spread([run[name] for run in runs]) for name in figures},
        "runs": [{key: value for key, value in run.items() if key != "environment"} for run in runs],
    }


def main() -> None:
    """Gather, print, write."""
    runs = [figures_of(Path(name)) for name in sys.argv[1:]]
    full, lora = ([run for run in runs if run["method"] == kind] for kind in ("full", "lora"))
    if not full or not lora:
        raise SystemExit(__doc__)
    result = {
        "machine": full[0]["environment"],
        "parameters_millions": full[0]["parameters"] / 1e6,
        **gathered(full, FIGURES),
        "lora": {"machine": lora[0]["environment"], **gathered(lora, FIGURES[:2])},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for of, found in (("full", result), ("lora", result["lora"])):
        for name in FIGURES:
            if name in found:
                figure = found[name]
                print(f"{of} {name:<20} {figure['min']:8.1f} {figure['median']:8.1f} {figure['max']:8.1f}")


FIGURES = ("train_seconds", "exact_match_percent", "arithmetic_percent")

if __name__ == "__main__":
    main()
