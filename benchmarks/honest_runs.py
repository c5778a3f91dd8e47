"""Train honest runs and check them: no plausibility rule may have a finding.

    python benchmarks/honest_runs.py --keep FOLDER --runs 200          # trains missing runs, 30 minutes on two cores
    python benchmarks/honest_runs.py --keep FOLDER --judge             # only checks the runs in FOLDER
    python benchmarks/honest_runs.py --keep FOLDER --runs 66 --again   # adds the findings of new runs, not their curves

The runs are tiny, with settings drawn from a fixed seed. Writes benchmarks/results/honest_runs.json, whose curves
evidence/rules/plausibility and its tests use.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import REPOSITORY, RESULTS, build_parser

BASE = REPOSITORY / "trainer" / "configs" / "tiny.yaml"
ITEMS = (("What is 2 + 3?", "5"), ("Is 4 smaller than 9?", "yes"), ("Add 10 and 7.", "17"))
ROWS = (1, 3, 40)
"""Sizes of the datasets; the loss of a single row falls at every step."""


def draw_settings(number: int, folder: Path) -> dict[str, Any]:
    """Return the settings of a run."""
    draw = random.Random(number)
    model = draw.choices(("tiny-gpt2", "demo"), (8, 1))[0]
    steps = draw.randint(6, 30)
    dataset = draw.choice(("dev-reasoning-v2", "dev-stories-v1", *(f"{folder}/rows-{count}.jsonl" for count in ROWS)))
    eval_set = draw.choice((None, None, "eval_v1", f"{folder}/items.jsonl"))
    return {
        "name": f"honest-{number:03}",
        "mode": draw.choice(("full", "smoke")),
        "seed": draw.randint(0, 20),
        "model.name": model,
        "data.dataset": dataset,
        "data.generated_rows": draw.choice((0, 0, 200)) if dataset.startswith("dev-") else 0,
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
        **{"evaluation.eval_set": eval_set, "evaluation.max_new_tokens": 8, "evaluation.batch_size": 50},
        "limits.steps": steps,
    }


def write_rows(folder: Path) -> None:
    """Write the datasets and the evaluation set that are not built in."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"rows-{n}": [{"prompt": f"Say {i} twice.", "completion": f"{i} {i}"} for i in range(n)] for n in ROWS}
    files["items"] = [{"id": str(n), "prompt": prompt, "expected": answer} for n, (prompt, answer) in enumerate(ITEMS)]
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def train(folder: Path, settings: Mapping[str, Any]) -> None:
    """Train a run; a failed run is sealed as failed and kept."""
    from schemas.problems import ProblemError
    from trainer.config.load import load_config
    from trainer.recorder.progress import Watch
    from trainer.run import RunRequest, run

    words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
    command = ["trainproof", "train", "--config", str(BASE), *(part for word in words for part in ("--set", word))]
    folder.parent.mkdir(exist_ok=True)
    try:
        with Watch(quiet=True) as watch:
            config = load_config(BASE, settings=words)
            run(RunRequest(config=config, folder=folder, command=[*command, "--output", str(folder)]), watch)
    except ProblemError as error:
        print(f"{folder.name}: {error}")


def train_runs(folder: Path, runs: int) -> None:
    """Train every run that the folder lacks; many share a compiled program."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    write_rows(folder)
    for number in range(runs):
        run = folder / "runs" / f"honest-{number:03}"
        if not (run / "run_manifest.json").is_file():
            train(run, draw_settings(number, folder))
            shutil.rmtree(run / "checkpoints", ignore_errors=True)


def check_runs(folder: Path) -> dict[str, Any]:
    """Check every finished run in a folder; return the findings and the values that the plausibility rules use."""
    from evidence.grade import check_run
    from evidence.run import read_run

    findings, grades = Counter[str](), Counter[str]()
    rows, commits = [], set()
    for run in map(read_run, sorted((folder / "runs").iterdir())):
        if run.manifest is None or run.manifest["status"] == "running":
            continue  # interrupted
        manifest, report, metrics = run.manifest, check_run(run), run.metrics or []
        grades[report.grade.name] += 1
        findings.update({f"{each.code} {each.severity}" for each in report.findings})
        commits.add(manifest["code"]["commit"][:12])
        row = {"name": run.folder.name, "model": manifest["model"]["name"] if manifest["model"] else None}
        row |= {"status": manifest["status"], "dataset_rows": manifest["dataset"]["rows"]}
        row["learning_rate"] = (manifest["training"] or {}).get("schedule", {}).get("peak_learning_rate")
        row["losses"], row["grad_norms"] = ([each[key] for each in metrics] for key in ("loss", "grad_norm"))
        rows.append(row | {"codes": sorted({each.code for each in report.findings})})
    found = {"grades": dict(grades), "found": dict(sorted(findings.items()))}
    return {"runs": len(rows), "recorded_by": sorted(commits), **found, "rows": rows}


def main() -> None:
    """Train missing runs, check all runs and write the result."""
    parser = build_parser(__doc__)
    parser.add_argument("--keep", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--judge", action="store_true", help="train nothing")
    parser.add_argument("--again", action="store_true", help="add the findings to the stored result")
    args = parser.parse_args()
    if not args.judge:
        train_runs(args.keep, args.runs)
    result = check_runs(args.keep)
    print(f"{result['runs']} runs, grades {result['grades']}, findings {result['found']}")
    file = RESULTS / "honest_runs.json"
    if args.again:
        stored = json.loads(file.read_text("utf-8"))
        result = stored | {"again": {key: value for key, value in result.items() if key != "rows"}}
    file.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
