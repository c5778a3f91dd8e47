"""Real runs with drawn settings, and what `check` finds in them: no rule of plausibility may find anything.

Each run is tiny and trained here: another seed, learning rate, schedule, method, element type, dataset or evaluation,
drawn from a fixed seed. Its figures go to benchmarks/results/honest_runs.json, from which the bounds of
evidence/rules/plausibility are chosen and where tests/evidence/rules/test_honest_runs.py reads the curves.

    python benchmarks/honest_runs.py --keep FOLDER --runs 200   # trains what FOLDER lacks; half an hour on two cores
    python benchmarks/honest_runs.py --keep FOLDER --judge      # judges what is there
    python benchmarks/honest_runs.py --keep FOLDER --runs 66 --again  # adds what is found in new ones, not their curves
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "honest_runs.json"
ITEMS = [("What is 2 + 3?", "5"), ("Is 4 smaller than 9?", "yes"), ("Add 10 and 7.", "17")]
ROWS = (1, 3, 40)
"""Rows of the datasets of one's own: one row alone is learned by heart, and its loss falls at every step."""


def settings_of(number: int, folder: Path) -> list[str]:
    """Return the drawn settings of a run, as `--set` takes them."""
    draw = random.Random(number)
    model = draw.choices(("tiny-gpt2", "demo"), (8, 1))[0]
    steps = draw.randint(6, 30)
    dataset = draw.choice(("dev-reasoning-v2", "dev-stories-v1", *(folder / f"rows-{count}.jsonl" for count in ROWS)))
    asked = draw.choice((None, None, "eval_v1", folder / "items.jsonl"))
    built_in = not isinstance(dataset, Path)
    drawn = {
        "name": f"honest-{number:03}",
        "mode": draw.choice(("full", "smoke")),
        "seed": draw.randint(0, 20),
        "model.name": model,
        "data.dataset": dataset,
        "data.generated_rows": draw.choice((0, 0, 200)) if built_in else 0,
        "data.max_length": 96,
        "data.shuffle": draw.choice((True, True, False)),
        "data.packing": draw.random() < 0.15,
        "method.kind": draw.choices(("full", "lora"), (4, 1))[0],
        "optimizer.name": draw.choices(("adamw", "adafactor"), (4, 1))[0],
        "optimizer.learning_rate": float(f"{10 ** draw.uniform(-5, -1.5):.2g}"),
        "optimizer.schedule": draw.choice(("constant", "linear", "cosine")),
        "optimizer.warmup_steps": draw.choice((0, 0, 3)),
        "optimizer.weight_decay": draw.choice((0.0, 0.1)),
        "optimizer.max_grad_norm": draw.choice((1.0, 1.0, None)),
        "batch.microbatch_size": draw.choice((1, 2, 4)),
        "batch.accumulation_steps": draw.choice((1, 1, 1, 2)),
        "precision.compute": draw.choices(("float32", "bfloat16"), (4, 1))[0],
        "memory.remat": "none",
        "recording.log_every_steps": draw.choice((1, 1, 1, 2)),
        "evaluation.eval_set": asked,
        "evaluation.max_new_tokens": 8,
        "evaluation.batch_size": 50,
        "limits.steps": steps,
    }
    return [f"{key}={value if isinstance(value, Path | str) else json.dumps(value)}" for key, value in drawn.items()]


def write_rows(folder: Path) -> None:
    """Write the datasets and the evaluation set that are not built in."""
    folder.mkdir(parents=True, exist_ok=True)
    for count in ROWS:
        rows = [{"prompt": f"Say {n} twice.", "completion": f"{n} {n}"} for n in range(count)]
        (folder / f"rows-{count}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    items = [{"id": str(n), "prompt": asked, "expected": answer} for n, (asked, answer) in enumerate(ITEMS)]
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))


def train(folder: Path, runs: int) -> None:
    """Train every run that the folder lacks; compiled programs are kept, since many runs share one."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    from schemas.problems import ProblemError
    from trainer.config.load import load_config
    from trainer.recorder.progress import Watch
    from trainer.run import RunRequest, run

    write_rows(folder)
    for number in range(runs):
        place = folder / "runs" / f"honest-{number:03}"
        if (place / "run_manifest.json").is_file():
            continue
        settings = settings_of(number, folder)
        base = Path(__file__).parents[1] / "trainer" / "configs" / "tiny.yaml"
        command = ["trainproof", "train", "--config", str(base), *(w for one in settings for w in ("--set", one))]
        place.parent.mkdir(exist_ok=True)
        try:
            config = load_config(base, settings=settings)
            run(RunRequest(config=config, folder=place, command=[*command, "--output", str(place)]), Watch(quiet=True))
        except ProblemError as error:
            sys.stdout.write(f"{place.name}: {error}\n")
        shutil.rmtree(place / "checkpoints", ignore_errors=True)


def judged(folder: Path) -> dict[str, Any]:
    """Return what is found in every run of a folder, and the figures that plausibility looks at."""
    from evidence.grade import check_run
    from evidence.run import read_run

    found: Counter[str] = Counter()
    grades: Counter[str] = Counter()
    rows = []
    for place in sorted((folder / "runs").iterdir()):
        if json.loads((place / "run_manifest.json").read_text("utf-8"))["status"] == "running":
            continue  # cut off while it was trained
        report = check_run(read_run(place))
        grades[report.grade.name] += 1
        found.update({f"{each.code} {each.severity}" for each in report.findings})
        manifest = json.loads((place / "run_manifest.json").read_text("utf-8"))
        metrics = [json.loads(line) for line in (place / "metrics.jsonl").read_text("utf-8").splitlines()]
        rows.append(
            {
                "name": place.name,
                "model": manifest["model"] and manifest["model"]["name"],
                "status": manifest["status"],
                "commit": manifest["code"]["commit"][:12],
                "learning_rate": (manifest["training"] or {}).get("schedule", {}).get("peak_learning_rate"),
                "dataset_rows": manifest["dataset"]["rows"],
                "losses": [row["loss"] for row in metrics],
                "grad_norms": [row["grad_norm"] for row in metrics],
                "codes": sorted({each.code for each in report.findings}),
            }
        )
    code = sorted({row.pop("commit") for row in rows})
    return {
        "runs": len(rows),
        "recorded_by": code,
        "grades": dict(grades),
        "found": dict(sorted(found.items())),
        "rows": rows,
    }


def main() -> None:
    """Train what is lacking, judge everything, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args()
    if not asked.judge:
        train(asked.keep, asked.runs)
    result = judged(asked.keep)
    first = [row["losses"][0] for row in result["rows"] if row["losses"] and row["losses"][0] is not None]
    sys.stdout.write(f"{result['runs']} runs, grades {result['grades']}, findings {result['found']}\n")
    sys.stdout.write(f"first losses {min(first):.3f} to {max(first):.3f}; ln(576) is {math.log(576):.3f}\n")
    if asked.again:
        stored = json.loads(RESULT.read_text("utf-8"))
        result = stored | {"again": {key: value for key, value in result.items() if key != "rows"}}
    RESULT.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
