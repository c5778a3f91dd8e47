"""Measure the CPU time of `trainproof train` until its first step, with an empty and with a filled compilation cache.

    python benchmarks/start.py

The model has the shapes of SmolLM2-135M with random bfloat16 weights and LoRA adapters of rank 16; a step has one row
of 128 tokens. CPU seconds are counted until the first metric row is written. Writes benchmarks/results/start.json. The
exit code is 1 if a start takes longer than its limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import psutil
from harness import child_seconds, spread, trainproof, write_json, write_model

from evidence.registry import known_model_folder
from trainer.recorder.environment import environment

MODEL = "HuggingFaceTB/SmolLM2-135M"
LIMITS = {"first": 25.0, "again": 10.0}
"""Maximum median CPU seconds until the first step, with an empty and with a filled cache."""
ROUNDS = 3
REMOVED = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "PYTHONDONTWRITEBYTECODE")
"""Environment variables that would move the cache, or make Python compile our sources at every start."""
SETTINGS = {"data.max_length": 128, "batch.microbatch_size": 1, "limits.steps": 1}
LORA = {"method.kind": "lora", "method.rank": 16, "method.alpha": 32}
POLL_SECONDS = 0.02


def measure_start(folder: Path, model: Path, start: str) -> dict[str, Any]:
    """Run a command and return its times and memory."""
    run, config = folder / start, folder / "config.yaml"
    config.write_text(json.dumps({"model": {"name": str(model)}}))
    command = trainproof("train", "--config", str(config), "--output", str(run), settings=SETTINGS | LORA)
    variables = {name: value for name, value in os.environ.items() if name not in REMOVED}
    variables["TRAINPROOF_CACHE"] = str(folder / "cache")
    before, rows, first_step = child_seconds(), run / "metrics.jsonl", None
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        if first_step is None and rows.exists() and rows.stat().st_size:
            first_step = sum(watched.cpu_times()[:4])
        time.sleep(POLL_SECONDS)
    assert process.returncode == 0, f"{' '.join(command)} exited with {process.returncode}"
    assert first_step is not None, "the command ended before its first row was seen"
    result = json.loads((run / "run_manifest.json").read_text())["result"]
    return {
        "start": start,
        "cpu_seconds": round(first_step, 2),
        "whole_cpu_seconds": round(child_seconds() - before, 2),
        "compiled_before": result["compiled_before"],
        "kept_bytes": sum(file.stat().st_size for file in (folder / "cache").rglob("*-cache")),
        "observed_bytes": result["observed_memory"]["bytes"],
        "loss": result["last_loss"],
    }


def main() -> int:
    """Start twice a round, print and write; return 1 if a limit is exceeded."""
    starts: list[dict[str, Any]] = []
    shapes = known_model_folder(MODEL)
    assert shapes is not None, "the shapes ship"
    with tempfile.TemporaryDirectory() as scratch:
        model = write_model(Path(scratch) / "model", json.loads((shapes / "config.json").read_text()), "bfloat16")
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                for start in LIMITS:
                    starts.append(measure_start(Path(folder), model, start))
                    print(json.dumps(starts[-1]), flush=True)
    seconds = {start: spread([one["cpu_seconds"] for one in starts if one["start"] == start], 2) for start in LIMITS}
    limits = {start: {"limit": limit, "cpu_seconds": seconds[start]} for start, limit in LIMITS.items()}
    write_json("start.json", {"environment": environment(), "model": MODEL, "limits": limits, "starts": starts})
    return int(any(each["cpu_seconds"]["median"] > each["limit"] for each in limits.values()))


if __name__ == "__main__":
    sys.exit(main())
