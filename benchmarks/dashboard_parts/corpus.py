"""The runs that the dashboards are measured on: the same settings, figures and curves in the form of each tool.

Run as a command it writes the form of one peer, in the Python where that peer is installed:
`python corpus.py tensorboard|mlflow FOLDER RUNS`.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROWS = 1000
LONG_ROWS = 1_000_000
SPIKES = (123_457, 500_001, 876_543)
"""Steps of the long run at which one loss stands out; a chart that leaves extremes out does not show them."""

SETTINGS = ("learning_rate", "batch_size", "steps", "schedule", "seed", "weight_decay", "max_length", "dtype")
FIGURES = ("exact_match", "format_compliance", "last_loss", "mean_loss", "best_loss", "train_seconds")


def losses(seed: int, rows: int) -> Iterator[float]:
    """Yield a loss that falls from 5 to 1 with some noise, the same for every tool."""
    noise = random.Random(f"losses {seed}")
    for step in range(1, rows + 1):
        spike = 5.0 if rows == LONG_ROWS and step in SPIKES else 0.0
        yield round(1 + 4 / (1 + 8 * step / rows) + noise.uniform(-0.05, 0.05) + spike, 6)


def settings_of(seed: int) -> dict[str, str]:
    """Return the eight settings of a run."""
    values = (f"{1e-4 * (1 + seed % 9):g}", "8", str(ROWS), "cosine", str(seed), "0.1", "256", "float32")
    return dict(zip(SETTINGS, values, strict=True))


def figures_of(seed: int) -> dict[str, float]:
    """Return the six summary figures of a run."""
    chance = random.Random(f"figures {seed}")
    return {name: round(chance.random(), 4) for name in FIGURES}


def write_tensorboard(folder: Path, runs: int) -> None:
    """Write an event file for each run, with the peer's own writer."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def write(name: str, seed: int, rows: int) -> None:
        writer = EventFileWriter(str(folder / name))
        for step, loss in enumerate(losses(seed, rows), start=1):
            values = [Summary.Value(tag="loss", simple_value=loss)]
            if step == rows:
                values += [Summary.Value(tag=tag, simple_value=value) for tag, value in figures_of(seed).items()]
            writer.add_event(Event(wall_time=1.8e9 + step, step=step, summary=Summary(value=values)))
        writer.close()

    for seed in range(runs):
        write(f"run-{seed:05d}", seed, ROWS)
    write("long/long", 10**6, LONG_ROWS)


def write_mlflow(folder: Path, runs: int) -> None:
    """Write a database for the peer: its own tables, filled by SQL, since its own writer takes 0.1 s a run."""
    import mlflow

    folder.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.create_experiment("runs")
    longs = mlflow.create_experiment("long")
    with sqlite3.connect(folder / "mlflow.db") as base:
        for seed in range(runs):
            _mlflow_run(base, experiment, f"run-{seed:05d}", seed, ROWS)
        _mlflow_run(base, longs, "long", 10**6, LONG_ROWS)


def _mlflow_run(base: sqlite3.Connection, experiment: str, name: str, seed: int, rows: int) -> None:
    run = f"{seed:032x}"
    began = int(time.time() * 1000) + seed
    base.execute(
        "insert into runs (run_uuid, name, source_type, source_name, user_id, status, start_time, end_time, "
        "lifecycle_stage, artifact_uri, experiment_id) "
        "values (?, ?, 'LOCAL', '', 'u', 'FINISHED', ?, ?, 'active', ?, ?)",
        (run, name, began, began + 1000, f"/tmp/{run}", experiment),
    )
    base.executemany(
        "insert into params (key, value, run_uuid) values (?, ?, ?)",
        [(key, value, run) for key, value in settings_of(seed).items()],
    )
    base.execute("insert into tags (key, value, run_uuid) values ('mlflow.runName', ?, ?)", (name, run))
    last = {}
    points = []
    for step, loss in enumerate(losses(seed, rows), start=1):
        points.append(("loss", loss, began + step, run, step, 0))
    last["loss"] = points[-1]
    for key, value in figures_of(seed).items():
        last[key] = (key, value, began + rows, run, rows, 0)
        points.append(last[key])
    columns = "(key, value, timestamp, run_uuid, step, is_nan) values (?, ?, ?, ?, ?, ?)"
    base.executemany(f"insert into metrics {columns}", points)
    base.executemany(f"insert into latest_metrics {columns}", list(last.values()))


if __name__ == "__main__":
    {"tensorboard": write_tensorboard, "mlflow": write_mlflow}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
