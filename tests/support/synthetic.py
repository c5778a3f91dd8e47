"""Synthetic run folders: valid, complete, small and fast, for the tests and benchmarks of every part.

`write_run` writes what a real run writes, from a model that only exists on paper. What the documents say of each other
is true: the result follows from the rows, the scores from the predictions, the hashes from the files.
"""

import json
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import synthetic_documents as documents
import yaml
from synthetic_rows import COMPILE_SECONDS, STARTED, STEP_SECONDS, log_rows, metric_rows, prediction_rows
from synthetic_rows import read_rows as read_rows

from evidence import layout
from evidence.hashes import sha256_file


def write_run(
    root: Path,
    run_id: str,
    *,
    steps: int = 20,
    mode: str = "full",
    status: str = "succeeded",
    items: int = 12,
    correct: float = 0.6,
    baseline: bool = True,
    seed: int = 0,
    started: datetime = STARTED,
    **changes: Mapping[str, Any],
) -> Path:
    """Write `root/run_id`, a run folder that is graded `consistent` unless the arguments say otherwise.

    Args:
        root: Folder of runs, created if it is missing.
        run_id: Name of the run and of its folder.
        steps: Planned steps. A run that did not succeed has done the first half of them.
        mode: `smoke` or `full`.
        status: As in the manifest; only a succeeded run is evaluated.
        items: Number of evaluation items, 0 for no evaluation. Runs with the same number have the same questions.
        correct: Probability that an item is answered correctly.
        baseline: Whether the untrained model was evaluated too; it gets every item wrong.
        seed: Seed of losses and answers.
        started: When the run started.
        changes: Values to change in a document before hashes are taken, such as `manifest={"code": {"dirty": True}}`;
            also `config`, `plan`, `first_examples` and `eval_summary`.
    """
    folder = Path(root) / run_id
    folder.mkdir(parents=True)

    def changed(key: str, document: dict[str, Any]) -> dict[str, Any]:
        return documents.merged(document, changes.get(key, {}))

    done = steps if status == "succeeded" else steps // 2
    items = items if status == "succeeded" else 0
    rows = metric_rows(done, steps, seed, started)
    end = started + timedelta(seconds=COMPILE_SECONDS + STEP_SECONDS * done + (20.0 if items else 1.0))
    config = changed("config", documents.build_config(run_id, steps, mode, seed, items, baseline=baseline))
    _write_text(folder / layout.CONFIG, yaml.safe_dump(config, sort_keys=False))
    write_document(folder / layout.PLAN, changed("plan", documents.build_plan(config, started)))
    write_document(folder / layout.FIRST_EXAMPLES, changed("first_examples", documents.build_first_examples(run_id)))
    write_rows(folder / layout.METRICS, rows)
    write_rows(folder / layout.LOG, log_rows(run_id, status, done, started, end))
    if items:
        write_rows(folder / layout.PREDICTIONS, prediction_rows(items, correct, random.Random(f"answers {seed}")))
        if baseline:
            write_rows(folder / layout.BASELINE_PREDICTIONS, prediction_rows(items, 0.0, random.Random("baseline")))
        summary = documents.build_eval_summary(folder, run_id, done, seed, end)
        write_document(folder / layout.EVAL_SUMMARY, changed("eval_summary", summary))
    manifest = documents.build_manifest(run_id, config, rows, status, started, None if status == "running" else end)
    write_document(folder / layout.MANIFEST, changed("manifest", manifest))
    if status != "running":
        seal(folder)
    return folder


def seal(folder: Path) -> None:
    """State every evidence file of the folder in the manifest's artifact list, as the end of a run does."""
    path = folder / layout.MANIFEST
    manifest = json.loads(path.read_text("utf-8"))
    manifest["artifacts"] = [
        {
            "path": name,
            "bytes": (folder / name).stat().st_size,
            "sha256": sha256_file(folder / name),
            "role": layout.ROLES.get(name, "other"),
        }
        for name in sorted(item.name for item in folder.iterdir())
        if name not in (layout.MANIFEST, layout.LOCK)
    ]
    write_document(path, manifest)


def write_document(path: Path, value: Any) -> None:
    """Write a JSON document without the durability that `evidence.writing` gives real runs."""
    _write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a JSONL file."""
    _write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
