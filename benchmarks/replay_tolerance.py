"""How far the same training is from itself on another processor: what a replay on another machine is held against.

Another CPU is stood in for by what differs between CPUs: the instructions that XLA may use (AVX2 in place of AVX-512)
and the number of threads (one core). Each training is done as it is here, and again under each of these; compared are
loss and gradient norm of every step, relative to the larger value, up to some number of steps. A high learning rate is
among them, under which differences grow fastest. The factor stands for CPUs that are not here.

    python benchmarks/replay_tolerance.py   # some minutes; writes benchmarks/results/replay_tolerance.json and
                                            # trainer/replay/tolerances.json
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.replay.difference import FLOOR

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "replay_tolerance.json"
TABLE = ROOT / "trainer" / "replay" / "tolerances.json"

STEPS = (1, 5, 20, 60)
"""Up to how many steps after a common state differences are told."""
FACTOR = 4
LEAST = 2**-20
"""Allowed at least: eight units in the last place of float32, in which losses and norms are added up in any type."""
FIELDS = ("loss", "grad_norm", "loss_scale")
COMPUTE = ("float32", "bfloat16", "float16")
VARIANTS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "as it is": ({}, ()),
    "AVX2": ({"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}, ()),
    "one core": ({}, ("taskset", "--cpu-list", "0")),
}
MODELS = ("tiny-gpt2", "tiny-gpt2 fast", "demo lora")


def config_of(model: str, compute: str) -> Config:
    """Return a training that learns quickly, so that differences grow as they do."""
    return Config(
        name="tolerance",
        model=ModelConfig(name=model.split()[0]),
        method=MethodConfig(kind="lora" if model.endswith("lora") else "full"),
        data=DataConfig(max_length=64),
        optimizer=OptimizerConfig(learning_rate=1e-2 if model.endswith("fast") else 2e-3, schedule="constant"),
        batch=BatchConfig(microbatch_size=4),
        # Compiled for what there is, since differences between processors are what is measured.
        precision=PrecisionConfig(compute=compute, cpu_isa="native"),  # type: ignore[arg-type]
        memory=MemoryConfig(remat="none", loss_chunk_tokens=None),
        mesh=MeshConfig(device="cpu", devices=1),
        limits=LimitsConfig(steps=max(STEPS)),
    )


def trained(model: str, compute: str) -> list[dict[str, Any]]:
    """Return the rows of a training in this process."""
    from trainer.inputs import read_inputs
    from trainer.loop.loop import Loop
    from trainer.loop.programs import compiled_steps
    from trainer.loop.session import StopRequest
    from trainer.loop.state import initial_state
    from trainer.replay.repetition import InMemoryRecorder
    from trainer.runtime import choose_devices

    config = config_of(model, compute)
    task, data = read_inputs(config, choose_devices("cpu", 1))
    states, frozen = initial_state(task)
    kept = InMemoryRecorder()
    loop = Loop(
        task=task,
        step=compiled_steps(task, data.source.lengths_in_use),
        frozen=frozen,
        source=data.source,
        recorder=kept,
        checkpoints=None,
        stop=StopRequest(max_minutes=None),
        progress=lambda done, total, loss: None,
    )
    loop.run(states)
    return kept.rows


def rows_under(variant: str, model: str, compute: str) -> list[dict[str, Any]]:
    """Return the rows of a training in a process of its own, under a variant."""
    variables, before = VARIANTS[variant]
    command = [*before, sys.executable, __file__, "--child", model, compute]
    environment = {**os.environ, **variables, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def apart(one: float | None, other: float | None) -> float:
    """Return how far two values are apart, relative to the larger; one that alone is not finite is wholly so."""
    if one is None or other is None:
        return float(one is not other)
    return abs(one - other) / max(abs(one), abs(other), FLOOR)


def furthest(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Return the largest relative difference of each field up to each number of steps."""
    found = {}
    for field in [field for field in FIELDS if field in one[0]]:
        pairs = [(a[field], b[field]) for a, b in zip(one, other, strict=True)]
        relative = [apart(a, b) for a, b in pairs]
        found[field] = [(steps, max(relative[:steps])) for steps in STEPS]
    return found


def table_of(measured: dict[str, Any]) -> dict[str, Any]:
    """Return the table of tolerances that follows from the measurements: the worst over models and variants."""
    worst = {
        compute: {
            field: [
                [steps, max(each[field][index][1] for models in by_model.values() for each in models.values())]
                for index, steps in enumerate(STEPS)
            ]
            for field in next(iter(next(iter(by_model.values())).values()))
        }
        for compute, by_model in measured.items()
    }
    return {"factor": FACTOR, "least": LEAST, "measured": worst}


def main() -> None:
    """Measure and write."""
    measured: dict[str, Any] = {}
    for compute in COMPUTE:
        for model in MODELS:
            here = rows_under("as it is", model, compute)
            for variant in [name for name in VARIANTS if name != "as it is"]:
                found = furthest(here, rows_under(variant, model, compute))
                measured.setdefault(compute, {}).setdefault(model, {})[variant] = found
                print(compute, model, variant, json.dumps(found), flush=True)
    document = {"machine": platform.processor() or platform.machine(), "steps": STEPS, "measured": measured}
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    TABLE.write_text(json.dumps(table_of(measured), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(trained(*sys.argv[2:4])))
    else:
        main()
