"""The runs that are planned and then carried out on this CPU, and how far the plan is from what was observed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent

CASES: dict[str, dict[str, Any]] = {
    "tiny-gpt2, every parameter, 4 × 128": {
        "model": {"name": "tiny-gpt2"},
        "data": {"max_length": 128},
        "batch": {"microbatch_size": 4},
    },
    "demo, every parameter, Adafactor, 8 × 256": {
        "model": {"name": "demo"},
        "data": {"max_length": 256},
        "optimizer": {"name": "adafactor"},
        "batch": {"microbatch_size": 8},
    },
    "demo, LoRA, 8 × 256": {
        "model": {"name": "demo"},
        "method": {"kind": "lora"},
        "data": {"max_length": 256},
        "batch": {"microbatch_size": 8},
    },
    "SmolLM2-135M, QLoRA, 1 × 128": {
        "model": {"name": "HuggingFaceTB/SmolLM2-135M"},
        "method": {"kind": "lora", "base": "nf4"},
        "data": {"max_length": 128},
        "batch": {"microbatch_size": 1},
    },
    "GPT-2 124M, every parameter, nothing donated, 2 × 256": {
        "model": {"name": "openai-community/gpt2"},
        "data": {"max_length": 256},
        "memory": {"donate": False},
        "batch": {"microbatch_size": 2},
    },
    "Qwen2.5-0.5B, every parameter, AdamW in float32, 1 × 128": {
        "model": {"name": "Qwen/Qwen2.5-0.5B"},
        "data": {"max_length": 128},
        "batch": {"microbatch_size": 1},
    },
}
"""Gemma-2B's shapes need more than this machine has: 38 GiB with AdamW in float32."""


def on_this_cpu() -> dict[str, Any]:
    """Return every case, planned and observed."""
    return summed_up({name: measured(document) for name, document in CASES.items()})


def summed_up(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return cases by name with how far they are off."""
    errors = [abs(row["error_fraction"]) for row in rows.values()]
    return {
        "cases": rows,
        "median_error_fraction": round(statistics.median(errors), 4),
        "worst_error_fraction": max(errors),
        "wrong_verdicts": [name for name, row in rows.items() if row["verdict"] != "fits"],
    }


def measured(document: dict[str, Any]) -> dict[str, Any]:
    """Return one case, run in a process of its own whose freed memory goes back at once."""
    command = [sys.executable, "-m", "plan_accuracy_parts.on_this_cpu", json.dumps(document)]
    env = os.environ | {"PYTHONPATH": f"{FOLDER}:{FOLDER.parent}", "MALLOC_MMAP_THRESHOLD_": "65536"}
    said = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, check=True).stdout
    row: dict[str, Any] = json.loads(said.strip().rpartition("\n")[2])
    row["error_fraction"] = round(row["planned_bytes"] / row["observed_bytes"] - 1, 4)
    return row
