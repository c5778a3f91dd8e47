"""The same runs in the form of trainproof: valid run folders of 1,000 rows, ten of them with predictions."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

from synthetic import STARTED, seal, write_document, write_run

from dashboard_parts.corpus import LONG_ROWS, ROWS, SPIKES
from evidence.scores.recompute import compute_result
from schemas.reading import read_rows

WITH_PREDICTIONS = 10


def write_ours(root: Path, runs: int) -> None:
    """Write `root` with this many runs, and beside it one run of a million rows with three spikes."""
    root.mkdir(parents=True)
    with ProcessPoolExecutor() as processes:
        list(processes.map(partial(_write, root), range(runs), chunksize=20))


def write_long(root: Path) -> Path:
    """Write a run of a million rows into a root of its own."""
    run = write_run(root, "long", steps=LONG_ROWS)
    metrics, manifest = run / "metrics.jsonl", run / "run_manifest.json"
    rows = metrics.read_text("utf-8").split("\n")
    for step in SPIKES:
        row = json.loads(rows[step - 1])
        row["loss"] = round(row["loss"] + 5, 6)
        rows[step - 1] = json.dumps(row)
    metrics.write_text("\n".join(rows), "utf-8")
    stated = json.loads(manifest.read_text("utf-8"))
    stated["result"] |= compute_result(read_rows(metrics, "metric_row").values)
    write_document(manifest, stated)
    seal(run)
    return run


def _write(root: Path, number: int) -> None:
    started = STARTED + timedelta(minutes=number)
    items = 100 if number < WITH_PREDICTIONS else 0
    write_run(root, f"run-{number:05d}", seed=number, steps=ROWS, items=items, started=started)
