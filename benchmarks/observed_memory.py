"""Predicted against observed memory on this CPU: real `trainproof train` commands, models of 0.2 M to 270 M parameters.

    python benchmarks/observed_memory.py

What is predicted stands in plan.json before the run; what is observed is how far the process grew, as Linux counts it
(`result.observed_memory`), which knows nothing of the plan. Models of public shapes get random weights in files, so
that reading them counts as it does for a user; their tokenizer is the built-in one. Each case is stored at once.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax.numpy as jnp
import numpy as np

from evidence.registry import known_model_folder
from trainer.config.tree import build_config
from trainer.model import files
from trainer.model.export import SHARD_BYTES, write_weights
from trainer.model.model import build_model
from trainer.model.source import BUILTIN_TOKENIZER, resolve_for_planning
from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "observed_memory.json"
STEPS = 3
ITEMS = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run."""

    model: str
    """Built in, or of public shapes."""
    settings: dict[str, Any] = field(default_factory=dict)


ADAPTERS = {"method.kind": "lora", "method.rank": 16}
CASES = {
    "tiny-gpt2 0.2 M, every parameter, 4 × 128": Case(
        model="tiny-gpt2", settings={"batch.microbatch_size": 4, "data.max_length": 128}
    ),
    "demo 1.1 M, every parameter, 8 × 256": Case(model="demo", settings={"batch.microbatch_size": 8}),
    "demo 1.1 M, every parameter, 64 × 256": Case(model="demo", settings={"batch.microbatch_size": 64}),
    "demo 1.1 M, adapters, 8 × 256": Case(model="demo", settings=ADAPTERS | {"batch.microbatch_size": 8}),
    "GPT-2 124 M, every parameter, nothing donated, 2 × 256": Case(
        model="openai-community/gpt2", settings={"memory.donate": False, "batch.microbatch_size": 2}
    ),
    "SmolLM2 135 M, adapters, 4 × 128": Case(
        model="HuggingFaceTB/SmolLM2-135M",
        settings=ADAPTERS | {"batch.microbatch_size": 4, "data.max_length": 128},
    ),
    "SmolLM2 135 M, adapters beside nf4, 1 × 128": Case(
        model="HuggingFaceTB/SmolLM2-135M",
        settings=ADAPTERS
        | {"method.base": "nf4", "memory.remat": "layer", "batch.microbatch_size": 1, "data.max_length": 128},
    ),
    "SmolLM2 135 M, every parameter, 2 × 128": Case(
        model="HuggingFaceTB/SmolLM2-135M", settings={"batch.microbatch_size": 2, "data.max_length": 128}
    ),
    "Gemma 3 270 M, adapters, 2 × 128": Case(
        model="google/gemma-3-270m",
        settings=ADAPTERS | {"batch.microbatch_size": 2, "data.max_length": 128},
    ),
}


def main() -> None:
    """Run every case that is not stored yet."""
    stored: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    rows: dict[str, Any] = stored.get("cases", {})
    for name, case in CASES.items():
        if name not in rows:
            rows[name] = measured(case)
            print(name, json.dumps(rows[name]), flush=True)
            RESULT.write_text(json.dumps(summed_up(rows), indent=1) + "\n")
    print(json.dumps(summed_up(rows) | {"cases": len(rows)}, indent=1))


def summed_up(rows: dict[str, Any]) -> dict[str, Any]:
    """Return cases with how far they are off."""
    errors = [row["process_error_fraction"] for row in rows.values()]
    summary = {}
    if errors:
        summary = {
            "median_error_fraction": round(statistics.median(map(abs, errors)), 4),
            "least_error_fraction": min(errors),
            "most_error_fraction": max(errors),
        }
    return {"environment": environment(), "cases": rows, **summary}


def measured(case: Case) -> dict[str, Any]:
    """Return one case, run as its user would."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = case.model if "/" not in case.model else str(model_files(case.model, folder / "model"))
        items = folder / "items.jsonl"
        items.write_text(
            "".join(
                json.dumps({"id": f"i{n}", "prompt": f"What is {n} + 5?", "expected": str(n + 5)}) + "\n"
                for n in range(ITEMS)
            )
        )
        config = folder / "config.yaml"
        config.write_text(json.dumps({"model": {"name": model}}))
        settings = {
            "limits.steps": STEPS,
            "evaluation.eval_set": str(items),
            "evaluation.max_new_tokens": 16,
            "evaluation.batch_size": ITEMS,
            **case.settings,
        }
        command = [str(Path(sys.executable).parent / "trainproof"), "train", "--config", str(config)]
        command += ["--output", str(folder / "run")]
        for key, value in settings.items():
            command += ["--set", f"{key}={json.dumps(value)}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        plan = json.loads((folder / "run" / "plan.json").read_text())
        manifest = json.loads((folder / "run" / "run_manifest.json").read_text())
    observed = manifest["result"]["observed_memory"]
    process = plan["need_bytes"] + plan["target"]["process_bytes"]
    return {
        "parameters": manifest["model"]["parameters"],
        "arrays_bytes": plan["need_bytes"],
        "process_bytes": process,
        "observed_bytes": observed["bytes"],
        "observed_parts": {each["name"]: each["bytes"] for each in observed["parts"]},
        "held_before_bytes": observed["held_before_bytes"],
        "process_error_fraction": round(process / observed["bytes"] - 1, 4),
        "programs": {each["name"]: each["peak_bytes"] for each in plan["programs"]},
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }


def model_files(name: str, folder: Path, element_type: str = "float32") -> Path:
    """Write a model of public shapes with random weights and the built-in tokenizer, and return its folder."""
    shapes = known_model_folder(name)
    assert shapes is not None, "the shapes ship"
    source = resolve_for_planning(name)
    model = build_model(build_config({"model": {"name": name}}), source)
    generator = np.random.default_rng(0)
    params = {
        name: jnp.asarray(generator.normal(0, 0.02, shape.shape), shape.dtype) for name, shape in model.shapes.items()
    }
    folder.mkdir()
    write_weights(folder, params, source.family.links(source.spec), element_type, SHARD_BYTES, lambda: None)
    (folder / files.CONFIG).write_text((shapes / files.CONFIG).read_text())
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_text((BUILTIN_TOKENIZER / file).read_text())
    return folder


if __name__ == "__main__":
    main()
