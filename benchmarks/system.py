"""What watching the machine costs: processor time of a row of system.jsonl, and of whole runs with and without.

Processor seconds, not wall time, so that a busy machine says the same. Beside a step stands what the loop itself does
for it, two readings of a clock.

    python benchmarks/system.py            # prints the figures and writes benchmarks/results/system.json
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_THREAD, getrusage
from statistics import median

import jax

from evidence import layout
from evidence.writing import RowWriter
from trainer.config.tree import RecordingConfig
from trainer.recorder.sensors import DataWait, SystemWatch, sensor_of

RESULT = Path(__file__).parent / "results" / "system.json"
ROWS = 200
STEPS = 150
PAIRS = 3
MOST_PERCENT = 0.5


def row_seconds() -> list[float]:
    """Return the processor seconds of each of many rows, read and written."""
    devices, found = jax.devices(), []
    with tempfile.TemporaryDirectory() as folder, RowWriter(Path(folder) / layout.SYSTEM) as rows:
        watch = SystemWatch(Path(folder), every_seconds=5, devices=devices, sensor=sensor_of(devices), wait=DataWait())
        for _ in range(ROWS):
            began = seconds_of(RUSAGE_THREAD)
            rows.append(watch.row())
            found.append(seconds_of(RUSAGE_THREAD) - began)
    return found


def clock_seconds() -> float:
    """Return the processor seconds that counting the wait of one step takes."""
    wait, count, began = DataWait(), 100_000, time.process_time()
    for _ in range(count):
        at = time.perf_counter()
        wait.add(time.perf_counter() - at)
    return (time.process_time() - began) / count


def run_seconds(every: str) -> float:
    """Return the processor seconds of a whole small run in a process of its own."""
    began = seconds_of(RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"limits.steps={STEPS}", f"recording.system_every_seconds={every}", "evaluation.eval_set=null"]
        flags = [flag for setting in settings for flag in ("--set", setting)]
        command = [sys.executable, "-m", "trainproof", "train", "--config", "trainer/configs/demo.yaml"]
        subprocess.run([*command, "--output", f"{folder}/run", *flags], check=True, capture_output=True)
    return seconds_of(RUSAGE_CHILDREN) - began


def seconds_of(whose: int) -> float:
    """Return the processor seconds spent so far."""
    used = getrusage(whose)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, print and write."""
    rows, every = row_seconds(), RecordingConfig().system_every_seconds
    assert every is not None, "the machine is watched by default"
    pairs = [(run_seconds(str(every)), run_seconds("null")) for _ in range(PAIRS)]
    found = {
        "machine": f"{platform.machine()}, {jax.devices()[0].device_kind}",
        "row_cpu_milliseconds": {"median": round(1000 * median(rows), 3), "max": round(1000 * max(rows), 3)},
        "every_seconds": every,
        "percent_of_one_processor": round(100 * sum(rows) / len(rows) / every, 4),
        "step_cpu_microseconds": round(1e6 * clock_seconds(), 3),
        "runs": {
            "steps": STEPS,
            "cpu_seconds_with": [round(with_, 2) for with_, _ in pairs],
            "cpu_seconds_without": [round(without, 2) for _, without in pairs],
        },
    }
    assert found["percent_of_one_processor"] < MOST_PERCENT, found
    text = json.dumps(found, indent=2) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
