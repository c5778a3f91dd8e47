"""Measure the CPU time of `trainproof train` until its first step, with an empty and with a filled compilation cache.

    python benchmarks/start.py

The model has the shapes of SmolLM2-135M with random bfloat16 weights and LoRA adapters of rank 16; a step has one row
of 128 tokens. CPU seconds are counted until the first metric row is written, with scanned (`auto`) and unrolled layers.
Writes benchmarks/results/start.json. The exit code is 1 if a start takes longer than its limit.
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
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import psutil
from harness import RESULTS, spread, write_json
from memory_estimate import model_files

from trainer.recorder.environment import environment

MODEL = "HuggingFaceTB/SmolLM2-135M"
LIMITS = {"first": 25.0, "again": 10.0}
"""Maximum median CPU seconds until the first step with `memory.layers: auto`."""
ROUNDS = 3
REMOVED = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "PYTHONDONTWRITEBYTECODE")
"""Environment variables that would move the cache, or make Python compile our sources at every start."""
SETTINGS = {
    "data.max_length": 128,
    "batch.microbatch_size": 1,
    "method.kind": "lora",
    "method.rank": 16,
    "method.alpha": 32,
    "limits.steps": 1,
}
POLL_SECONDS = 0.02


def measure_start(folder: Path, model: Path, layers: str, start: str) -> dict[str, Any]:
    """Run a command and return its times and memory."""
    run, config = folder / start, folder / "config.yaml"
    config.write_text(json.dumps({"model": {"name": str(model)}}))
    command = [str(Path(sys.executable).parent / "trainproof"), "train", "--config", str(config), "--output", str(run)]
    for key, value in {**SETTINGS, "memory.layers": layers}.items():
        command += ["--set", f"{key}={value}"]
    variables = {name: value for name, value in os.environ.items() if name not in REMOVED}
    variables["TRAINPROOF_CACHE"] = str(folder / "cache")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    first_step = run_until_first_row(command, variables, run / "metrics.jsonl")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = json.loads((run / "run_manifest.json").read_text())
    programs = json.loads((run / "plan.json").read_text())["programs"]
    return {
        "layers": manifest["training"]["layers"],
        "start": start,
        "cpu_seconds": round(first_step, 2),
        "whole_cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "compiled_before": manifest["result"]["compiled_before"],
        "kept_bytes": sum(file.stat().st_size for file in (folder / "cache").rglob("*-cache")),
        "step_arrays_bytes": next(each["peak_bytes"] for each in programs if each["name"] == "train"),
        "observed_bytes": manifest["result"]["observed_memory"]["bytes"],
        "loss": manifest["result"]["last_loss"],
    }


def run_until_first_row(command: list[str], variables: dict[str, str], rows: Path) -> float:
    """Run a command to its end and return its CPU seconds when the first row was written."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)
    watched, seconds = psutil.Process(process.pid), None
    while process.poll() is None:
        if seconds is None and rows.exists() and rows.stat().st_size:
            seconds = sum(watched.cpu_times()[:4])
        time.sleep(POLL_SECONDS)
    assert process.returncode == 0, f"{' '.join(command)} exited with {process.returncode}"
    assert seconds is not None, "the command ended before its first row was seen"
    return seconds


def summarize(starts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the limits, the last start of each case, and the ratios of unrolled to scanned layers."""
    cases: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in starts:
        cases.setdefault((each["layers"], each["start"]), []).append(each)
    seconds = {case: spread([each["cpu_seconds"] for each in several], 2) for case, several in cases.items()}
    return {
        "environment": environment(),
        "model": MODEL,
        "limits": {
            start: {"limit": limit, "cpu_seconds": seconds["scanned", start]} for start, limit in LIMITS.items()
        },
        "unrolled_to_scanned": {
            start: round(seconds["unrolled", start]["median"] / seconds["scanned", start]["median"], 2)
            for start in LIMITS
            if ("unrolled", start) in seconds
        },
        "starts": [several[-1] | {"cpu_seconds": seconds[case]} for case, several in cases.items()],
    }


def main() -> int:
    """Start every case twice a round, print and write; return 1 if a limit is exceeded."""
    starts: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        model = model_files(MODEL, Path(scratch) / "model", "bfloat16")
        for _ in range(ROUNDS):
            for layers in ("auto", "unrolled"):
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    for start in LIMITS:
                        starts.append(measure_start(Path(folder), model, layers, start))
                        print(json.dumps(starts[-1]), flush=True)
    result = summarize(starts)
    write_json(RESULTS / "start.json", result)
    return int(any(each["cpu_seconds"]["median"] > each["limit"] for each in result["limits"].values()))


if __name__ == "__main__":
    sys.exit(main())
