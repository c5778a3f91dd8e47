"""Measure how far the same training differs between processors, and derive the tolerances of `trainproof replay`.

    python benchmarks/replay_tolerance.py

Another CPU is emulated by what differs between CPUs: the instruction set (AVX2 instead of AVX-512) and the number of
threads (one core). Each training runs unchanged and under each variant. Compared are loss and gradient norm, relative
to the larger value, over the first steps. One case has a high learning rate, for which differences grow fastest; the
factor allows for CPUs that were not emulated. Takes some minutes. Writes benchmarks/results/replay_tolerance.json and
trainer/replay/tolerances.json.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import REPOSITORY, trainproof, write_json

from trainer.replay.repetition import FLOOR

TABLE = REPOSITORY / "trainer" / "replay" / "tolerances.json"
STEPS = (1, 5, 20, 60)
"""Numbers of steps after a common state for which differences are stored."""
FACTOR = 4
LEAST = 2**-20
"""Minimum tolerance: eight units in the last place of float32, in which losses and norms are summed."""
FIELDS = ("loss", "grad_norm", "loss_scale")
COMPUTE = ("float32", "bfloat16", "float16")
UNCHANGED = "as it is"
VARIANTS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    UNCHANGED: ({}, ()),
    "AVX2": ({"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}, ()),
    "one core": ({}, ("taskset", "--cpu-list", "0")),
}
"""Environment variables and command prefix."""
SETTINGS = {
    **{"data.max_length": 64, "batch.microbatch_size": 4, "limits.steps": max(STEPS), "evaluation.eval_set": None},
    **{"memory.remat": "none", "memory.loss_chunk_tokens": None, "mesh.device": "cpu", "mesh.devices": 1},
    "optimizer.schedule": "constant",
    # What differs between processors is measured: programs are native.
    "precision.cpu_isa": "native",
}
MODELS = ("tiny-gpt2", "tiny-gpt2 fast", "demo lora")


def train(model: str, compute: str, variables: dict[str, str], prefix: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the metric rows of a training with fast learning, so that differences grow."""
    name, _, kind = model.partition(" ")
    learning = {"optimizer.learning_rate": 1e-2 if kind == "fast" else 2e-3, "precision.compute": compute}
    settings = SETTINGS | learning | {"method.kind": "lora" if kind == "lora" else "full"}
    with TemporaryDirectory() as folder:
        config, run = Path(folder, "config.yaml"), Path(folder, "run")
        config.write_text(json.dumps({"model": {"name": name}}))
        command = trainproof("train", "--config", str(config), "--output", str(run), settings=settings)
        environment = os.environ | variables | {"JAX_PLATFORMS": "cpu"}
        subprocess.run([*prefix, *command], env=environment, check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def relative_difference(first: float | None, second: float | None) -> float:
    """Return the difference relative to the larger value; 1 where only one value is finite."""
    if first is None or second is None:
        return float(first is not second)
    return abs(first - second) / max(abs(first), abs(second), FLOOR)


def compare(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Return the largest difference of each field over the first steps."""
    differences = {}
    for field in (field for field in FIELDS if field in one[0]):
        each = [relative_difference(a[field], b[field]) for a, b in zip(one, other, strict=True)]
        differences[field] = [(steps, max(each[:steps])) for steps in STEPS]
    return differences


def build_table(measured: dict[str, Any]) -> dict[str, Any]:
    """Return the table of tolerances: the largest differences over models and variants."""
    table: dict[str, Any] = {"factor": FACTOR, "least": LEAST, "measured": {}}
    for compute, models in measured.items():
        cases = [case for variants in models.values() for case in variants.values()]
        table["measured"][compute] = {
            field: [[steps, max(case[field][index][1] for case in cases)] for index, steps in enumerate(STEPS)]
            for field in cases[0]
        }
    return table


def main() -> None:
    """Measure and write."""
    measured: dict[str, Any] = {}
    for compute, model in product(COMPUTE, MODELS):
        rows = {}
        for variant, (variables, prefix) in VARIANTS.items():
            rows[variant] = train(model, compute, variables, prefix)
            if variant != UNCHANGED:
                differences = compare(rows[UNCHANGED], rows[variant])
                measured.setdefault(compute, {}).setdefault(model, {})[variant] = differences
                print(compute, model, variant, json.dumps(differences), flush=True)
    machine = platform.processor() or platform.machine()
    write_json("replay_tolerance.json", {"machine": machine, "steps": STEPS, "measured": measured})
    write_json(TABLE, build_table(measured))


if __name__ == "__main__":
    main()
