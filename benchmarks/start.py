"""What starting costs: processor seconds of `trainproof train` to the end of its first step, first and again.

    python benchmarks/start.py

The model has the shapes of SmolLM2-135M with random weights in bfloat16, as it is published; adapters of rank 16 learn.
The first start finds no kept programs, the second those of the first. Beside layers as `auto` has them stand layers
unrolled. A step of one row of 128 tokens is nearly all start; one of four rows shows what a step takes of memory.
Processor seconds are counted, until the row of the first step stands on the disk and of the whole command; wall time is
not. Rounds go through the cases in turn, so that other work on the machine meets them all. What has been measured is
stored after each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import psutil
from observed_memory import model_files

from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "start.json"
MODEL = "HuggingFaceTB/SmolLM2-135M"
BARS = {"first": 25.0, "again": 10.0}
"""Most processor seconds to the end of the first step, of one row and with `auto`, in the median of the rounds."""

ROUNDS = {(1, "auto"): 3, (1, "unrolled"): 2, (4, "auto"): 1, (4, "unrolled"): 1}
"""How often each case is measured, by its rows and how layers lie."""

LEFT_OUT = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "PYTHONDONTWRITEBYTECODE")
"""Environment variables that would keep JAX's programs elsewhere, or have Python compile our sources at every start."""

SETTINGS = {"data.max_length": 128, "method.kind": "lora", "method.rank": 16, "method.alpha": 32, "limits.steps": 1}


def started(folder: Path, model: Path, rows: int, layers: str, which: str) -> dict[str, Any]:
    """Return what one command takes."""
    run = folder / which
    config = folder / "config.yaml"
    config.write_text(json.dumps({"model": {"name": str(model)}}))
    command = [str(Path(sys.executable).parent / "trainproof"), "train", "--config", str(config), "--output", str(run)]
    for key, value in {**SETTINGS, "batch.microbatch_size": rows, "memory.layers": layers}.items():
        command += ["--set", f"{key}={value}"]
    own = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    own["TRAINPROOF_CACHE"] = str(folder / "cache")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    first_step = until_first_row(command, own, run / "metrics.jsonl")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = json.loads((run / "run_manifest.json").read_text())
    programs = json.loads((run / "plan.json").read_text())["programs"]
    return {
        "rows": rows,
        "layers": manifest["training"]["layers"],
        "start": which,
        "cpu_seconds": round(first_step, 2),
        "whole_cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "compiled_before": manifest["result"]["compiled_before"],
        "kept_bytes": sum(file.stat().st_size for file in (folder / "cache").rglob("*-cache")),
        "step_arrays_bytes": next(each["peak_bytes"] for each in programs if each["name"] == "train"),
        "observed_bytes": manifest["result"]["observed_memory"]["bytes"],
        "loss": manifest["result"]["last_loss"],
    }


def until_first_row(command: list[str], environment: dict[str, str], rows: Path) -> float:
    """Carry out a command, and return the processor seconds that it had taken when its first row stood there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    watched, seconds = psutil.Process(process.pid), None
    while process.poll() is None:
        if seconds is None and rows.exists() and rows.stat().st_size:
            seconds = sum(watched.cpu_times()[:4])
        time.sleep(LOOKED_SECONDS)
    assert process.returncode == 0, f"{' '.join(command)} ended with {process.returncode}"
    assert seconds is not None, "the command ended before its row was seen"
    return seconds


LOOKED_SECONDS = 0.02
"""Between two looks at the rows: far less than what a command does after its first."""


def main() -> int:
    """Start each kind of run twice a round, print and write; return 1 if a start takes more than it may."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        model = model_files(MODEL, Path(scratch) / "model", "bfloat16")
        for number in range(max(ROUNDS.values())):
            for rows, layers in (case for case, rounds in ROUNDS.items() if number < rounds):
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    for which in BARS:
                        one = started(Path(folder), model, rows, layers, which)
                        print(
                            f"{rows} × 128, {one['layers']}, {which}: {one['cpu_seconds']:.1f} CPU s"
                            f" to the end of the step, {one['whole_cpu_seconds']:.1f} in all",
                            flush=True,
                        )
                        found.append(one)
                written = document(found)
                RESULT.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return int(any(bar["cpu_seconds"]["median"] > bar["most"] for bar in written["bars"].values()))


def document(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is written: bars, each kind of start with its spread, and what unrolled layers take more."""
    cases: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
    for one in found:
        cases.setdefault((one["rows"], one["layers"], one["start"]), []).append(one)
    seconds = {case: spread([one["cpu_seconds"] for one in several]) for case, several in cases.items()}
    return {
        "environment": environment(),
        "model": MODEL,
        "bars": {which: {"most": most, "cpu_seconds": seconds[1, "scanned", which]} for which, most in BARS.items()},
        "unrolled_to_scanned": {
            f"{rows} × 128, {which}": round(seconds[case]["median"] / seconds[rows, "scanned", which]["median"], 2)
            for case in seconds
            for rows, layers, which in [case]
            if layers == "unrolled"
        },
        "starts": [several[-1] | {"cpu_seconds": seconds[case]} for case, several in cases.items()],
    }


def spread(values: list[float]) -> dict[str, Any]:
    """Return the median, the least and the most of some values."""
    return {"median": round(median(values), 2), "least": min(values), "most": max(values), "n": len(values)}


if __name__ == "__main__":
    sys.exit(main())
