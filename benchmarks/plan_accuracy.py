"""How well plans hold: against the public failure, the compilers' limits, whole programs, and what others stated.

    python benchmarks/plan_accuracy.py

Every part is stored at once in benchmarks/results/plan_accuracy.json, and a stored one is not compiled again; delete
its key to have it anew. What the closed form says is taken from benchmarks/results/memory_estimate.json, which
benchmarks/memory_estimate.py makes. Nothing here has run on an accelerator: whole programs are those
of the compiler. What runs took is benchmarks/observed_memory.py.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parent))

from memory_estimate import RESULT as ESTIMATES
from memory_estimate import V5E_BYTES, configured, task_of
from memory_estimate_parts.cases import TPU_CASES, Case
from plan_accuracy_parts.plot import write_plot

from evidence.targets import load_target
from trainer.config.tree import config_of
from trainer.loop.mesh import shapes_mesh
from trainer.planning.compile.ahead import Compiler, CompilerError
from trainer.planning.formula import estimate
from trainer.planning.memory import Estimator
from trainer.planning.plan import PlanOptions, plan_config
from trainer.recorder.environment import environment

FOLDER = Path(__file__).parent
RESULT = FOLDER / "results" / "plan_accuracy.json"
PICTURE = FOLDER / "results" / "plan_accuracy.svg"
GIB = 2**30
ON_THE_CHIP_GIB = 28.59
"""Stated by the chip for the public failure."""


def part(name: str) -> dict[str, Any]:
    """Return what a program of `plan_accuracy_parts` prints."""
    command = [sys.executable, "-m", f"plan_accuracy_parts.{name}"]
    env = os.environ | {"PYTHONPATH": f"{FOLDER}:{FOLDER.parent}"}
    said = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said.strip().rpartition("\n")[2])
    return found


def public_failure() -> dict[str, Any]:
    """Return what the compiler says of the public failure."""
    said = part("public_failure")
    need = re.search(r"\(([\d.]+)G\) exceeds|Used ([\d.]+)G", said["refusal"])
    assert need is not None, said
    compiled = float(need[1] or need[2])
    return {
        "compiled_gib": compiled,
        "on_the_chip_gib": ON_THE_CHIP_GIB,
        "error_fraction": round(compiled / ON_THE_CHIP_GIB - 1, 4),
        "verdict": "does_not_fit",
    }


def caps() -> dict[str, Any]:
    """Return the limits that the compiler states, beside those of the table."""
    table = {"v3": "tpu-v3-8", "v4": "tpu-v4-8", "v5e": "tpu-v5e-1", "v5p": "tpu-v5p-8", "v6e": "tpu-v6e-8"}
    stated = {kind: round((load_target(name).memory_bytes or 0) / GIB, 2) for kind, name in table.items()}
    return {"compiler_gib": part("caps"), "table_gib": stated}


def closed_form() -> dict[str, Any]:
    """Return how far the closed form is from whole compiled programs."""
    summary: dict[str, Any] = json.loads(ESTIMATES.read_text())["summary"]
    return summary


def few_layers() -> dict[str, Any]:
    """Return how far few layers beside occupied memory are from the whole program, of the deep stored cases."""
    stored = {row["case"]: row for row in json.loads(ESTIMATES.read_text())["cases"]}
    rows = []
    with Compiler() as compiler:
        for case in TPU_CASES:
            if case.name not in stored or "/" in case.model:
                continue
            if row := _few_layers_of(case, stored[case.name], compiler):
                rows.append(row)
    errors = [abs(row["error_fraction"]) for row in rows]
    wrong = [row["case"] for row in rows if row["verdict"] == ("does_not_fit" if row["fits"] else "fits")]
    return {
        "cases": rows,
        "median_error_fraction": round(statistics.median(errors), 4),
        "worst_error_fraction": max(errors),
        "wrong_verdicts": wrong,
    }


def _few_layers_of(case: Case, row: dict[str, Any], compiler: Compiler) -> dict[str, Any] | None:
    """Return one case by its first layers, None where the compiler has no answer."""
    assert case.chips is not None, "these are cases for TPUs"
    with tempfile.TemporaryDirectory() as name:
        config = configured(case, Path(name))
        task = task_of(config, shapes_mesh(case.chips.devices))
        asking = Estimator(platform="tpu", available_bytes=V5E_BYTES, machine=case.chips, compiler=compiler)
        parts = estimate(task, platform="tpu", asked=case.asked)[case.program]
        try:
            answer = asking.extrapolated(case.program, task, case.asked, parts)
        except CompilerError as error:
            print(f"{case.name}: {error}")
            return None
    # Beside answers lies opt_state, which is no part of the compiled program.
    beside = sum(each.bytes for each in parts if each.name == "opt_state") if case.program == "decode" else 0
    whole = row["compiled_bytes"] + beside
    print(f"{answer.peak_bytes / GIB:8.2f} {whole / GIB:8.2f} {case.name}", flush=True)
    return {
        "case": case.name,
        "few_layers_bytes": answer.peak_bytes,
        "compiled_bytes": whole,
        "error_fraction": round(answer.peak_bytes / whole - 1, 4),
        "verdict": answer.verdict,
        "fits": row["fits"],
        "seconds": answer.seconds,
    }


STATED: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma-2B, every parameter, one v5e chip, stated infeasible": (
        "tpu-v5e-1",
        {
            "model": {"name": "google/gemma-2b"},
            "data": {"max_length": 512, "packing": True},
            "optimizer": {"name": "adafactor", "max_grad_norm": None},
            "precision": {"params": "bfloat16", "compute": "bfloat16"},
            "batch": {"microbatch_size": 8},
        },
    ),
    "Gemma-2B, two T4, a checkpoint every 500 steps": (
        "kaggle-t4x2",
        {
            "model": {"name": "google/gemma-2b"},
            "method": {"kind": "lora"},
            "data": {"max_length": 1024, "packing": True},
            "precision": {"params": "float16", "compute": "float16"},
            "batch": {"microbatch_size": 2, "accumulation_steps": 16},
            "checkpoint": {"save_every_steps": 500},
            "limits": {"steps": 3000},
        },
    ),
    "Qwen3-4B, LoRA, eight v5e chips": (
        "kaggle-tpu-v5e-8",
        {
            "model": {"name": "Qwen/Qwen3-4B"},
            "method": {"kind": "lora"},
            "data": {"max_length": 1024, "packing": True},
            "precision": {"params": "bfloat16", "compute": "bfloat16"},
            "batch": {"microbatch_size": 4},
        },
    ),
}


def statements() -> dict[str, Any]:
    """Return what a plan says of runs that others have made statements about."""
    found = {}
    for name, (target, document) in STATED.items():
        plan = plan_config(config_of(document), load_target(target), PlanOptions(advice=False))
        time = plan["time"]
        found[name] = {
            "target": target,
            "verdict": plan["verdict"],
            "method": plan["method"],
            "need_gib": round(plan["need_bytes"] / GIB, 2),
            "step_seconds": time and time["step_seconds"],
            "hours": time and time["hours"],
            "findings": [f"{each['code']}: {each['what']}" for each in plan["findings"]],
        }
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "public_failure": public_failure,
    "caps": caps,
    "closed_form": closed_form,
    "few_layers": few_layers,
    "statements": statements,
}
ALWAYS = ("closed_form",)


def main() -> None:
    """Go through the parts that are missing, store each, and draw the picture."""
    document: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    for name, measure in PARTS.items():
        if name not in document or name in ALWAYS:
            document |= {"environment": environment(), name: measure()}
            RESULT.write_text(json.dumps(document, indent=1) + "\n")
        print(name, json.dumps({key: value for key, value in document[name].items() if key != "cases"}))
    cases = json.loads(ESTIMATES.read_text())["cases"]
    points = [("closed form", row["estimated_bytes"] / GIB, row["compiled_bytes"] / GIB) for row in cases]
    few = document["few_layers"]["cases"]
    points += [("few layers compiled", row["few_layers_bytes"] / GIB, row["compiled_bytes"] / GIB) for row in few]
    write_plot(points, PICTURE)


if __name__ == "__main__":
    main()
