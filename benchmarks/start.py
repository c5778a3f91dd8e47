"""What starting costs: processor seconds of whole `trainproof train` commands of one step, first and again.

    python benchmarks/start.py

The model has the shapes of SmolLM2-135M with random weights in bfloat16, as it is published; adapters of rank 16 learn.
The first start compiles, the second finds what the first one kept. Beside them stand the same with layers unrolled, as
it was before equal layers were compiled once. A step of one row of 128 tokens is nearly all start; one of four rows
takes 3.6 s more by itself. Processor seconds of the process and its children are counted; wall time is not. Each case
is stored at once.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

from observed_memory import model_files

from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "start.json"
MODEL = "HuggingFaceTB/SmolLM2-135M"
BARS = {"first": 25.0, "again": 10.0}
"""Most processor seconds of a start with one row, layers as `auto` has them."""

SETTINGS = {"data.max_length": 128, "method.kind": "lora", "method.rank": 16, "method.alpha": 32, "limits.steps": 1}


def started(folder: Path, model: Path, rows: int, layers: str, which: str) -> dict[str, Any]:
    """Return what one command takes."""
    run = folder / f"{rows}-{layers}-{which}"
    config = folder / "config.yaml"
    config.write_text(json.dumps({"model": {"name": str(model)}}))
    command = [str(Path(sys.executable).parent / "trainproof"), "train", "--config", str(config), "--output", str(run)]
    for key, value in {**SETTINGS, "batch.microbatch_size": rows, "memory.layers": layers}.items():
        command += ["--set", f"{key}={value}"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
    own["TRAINPROOF_CACHE"] = str(folder / f"cache-{rows}-{layers}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=own)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = json.loads((run / "run_manifest.json").read_text())
    programs = json.loads((run / "plan.json").read_text())["programs"]
    return {
        "rows": rows,
        "layers": manifest["training"]["layers"],
        "start": which,
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "compiled_before": manifest["result"]["compiled_before"],
        "step_arrays_bytes": next(each["peak_bytes"] for each in programs if each["name"] == "train"),
        "observed_bytes": manifest["result"]["observed_memory"]["bytes"],
        "loss": manifest["result"]["last_loss"],
    }


def main() -> None:
    """Start each kind of run twice, print and write."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = model_files(MODEL, folder / "model", "bfloat16")
        for rows, layers in ((1, "auto"), (4, "auto"), (4, "unrolled")):
            for which in BARS:
                one = started(folder, model, rows, layers, which)
                found.append(one)
                print(
                    f"{rows} × 128, {one['layers']}, {which}: {one['cpu_seconds']:.1f} CPU s, "
                    f"arrays {one['step_arrays_bytes'] / 2**20:.0f}, process {one['observed_bytes'] / 2**20:.0f} MiB"
                )
                RESULT.write_text(json.dumps(document(found), indent=1) + "\n", encoding="utf-8")


def document(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is written: every start, and how they compare."""
    by = {(one["rows"], one["layers"], one["start"]): one for one in found}
    ratios = {
        f"unrolled_to_scanned_{which}": round(
            by[4, "unrolled", which]["cpu_seconds"] / by[4, "scanned", which]["cpu_seconds"], 2
        )
        for which in BARS
        if (4, "unrolled", which) in by
    }
    bars = {
        which: {"most": most, "cpu_seconds": by[1, "scanned", which]["cpu_seconds"]}
        for which, most in BARS.items()
        if (1, "scanned", which) in by
    }
    return {"environment": environment(), "model": MODEL, "bars": bars, "ratios": ratios, "starts": found}


if __name__ == "__main__":
    main()
