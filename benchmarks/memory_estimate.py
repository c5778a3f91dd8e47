"""The closed-form memory estimate beside the compiler's own figure for the same train step.

Compiles real train steps, without making a single array, for this CPU and, where libtpu is installed, for a TPU v5e
chip that is not there. Prints a row per case and writes benchmarks/results/memory_estimate.json.

    python benchmarks/memory_estimate.py
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"

import jax

from trainer.config.load import setting_value
from trainer.config.seed_names import set_at
from trainer.config.tree import Config, config_of
from trainer.loop.mesh import build_mesh, state_shardings
from trainer.loop.optimizer import build_optimizer
from trainer.loop.program import compile_program
from trainer.loop.step import first_state
from trainer.model.build import abstract
from trainer.model.families import spec_from_config
from trainer.model.files.source import resolve
from trainer.model.params import flatten
from trainer.model.spec import ModelSpec
from trainer.planning.devices import Devices, choose_devices
from trainer.planning.estimate import estimate
from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "memory_estimate.json"
GIB = 2**30

GEMMA_2B = {
    "model_type": "gemma",
    "vocab_size": 256000,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 18,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
}

ADAFACTOR = ["optimizer.name=adafactor", "optimizer.max_grad_norm=null", "precision.compute=bfloat16"]
CPU_CASES = {
    "demo, AdamW": ("demo", ["data.max_length=64", "batch.microbatch_size=32"]),
    "demo, AdamW, no remat": ("demo", ["data.max_length=64", "batch.microbatch_size=32", "memory.remat=none"]),
    "demo, Adafactor, not clipped": ("demo", ["data.max_length=64", "batch.microbatch_size=32", *ADAFACTOR[:2]]),
    "demo, four microbatches": ("demo", ["data.max_length=64", "batch.accumulation_steps=4"]),
    "demo, not donated": ("demo", ["data.max_length=64", "memory.donate=false"]),
    "tiny-gpt2, AdamW": ("tiny-gpt2", ["data.max_length=128", "batch.microbatch_size=16"]),
}
TPU_CASES = {
    "fp32, Adafactor, 1 × 512": ["data.max_length=512", "batch.microbatch_size=1", *ADAFACTOR],
    "fp32, Adafactor, 16 × 512": ["data.max_length=512", "batch.microbatch_size=16", *ADAFACTOR],
    "bf16, Adafactor, 1 × 512": [
        "data.max_length=512",
        "batch.microbatch_size=1",
        "precision.params=bfloat16",
        *ADAFACTOR,
    ],
    "bf16, Adafactor, 16 × 2048": [
        "data.max_length=2048",
        "batch.microbatch_size=16",
        "precision.params=bfloat16",
        *ADAFACTOR,
    ],
}


def configured(model: str, settings: list[str]) -> Config:
    """Return a configuration from `key=value` texts."""
    document: dict[str, Any] = {"model": {"name": model}}
    for text in settings:
        key, _, value = text.partition("=")
        set_at(document, key, setting_value(value))
    return config_of(document)


def measured(name: str, config: Config, spec: ModelSpec, devices: Devices) -> dict[str, Any]:
    """Compile one step for shapes alone and return both figures."""
    options = {"params_dtype": config.precision.params, "compute_dtype": config.precision.compute}
    graphdef, shapes = flatten(abstract(spec, **options, remat=config.memory.remat))
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    state = jax.eval_shape(lambda tree: first_state(tree, optimizer), shapes)
    shardings = state_shardings(state, build_mesh(devices.list), shard_params=config.mesh.shard_params)
    placed = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state, shardings
    )
    parts = estimate(config, spec, shapes, platform=devices.platform, devices=len(devices.list))
    estimated = sum(part.bytes for part in parts)
    began = time.perf_counter()
    try:
        analysis = compile_program(graphdef, placed, config, devices).compiled.memory_analysis()
        compiled, verdict = peak_of(analysis, devices.platform), "compiled"
    except jax.errors.JaxRuntimeError as error:
        compiled, verdict = None, str(error).splitlines()[0][:300]
    return {
        "case": name,
        "target": devices.kind,
        "estimated_bytes": estimated,
        "compiled_bytes": compiled,
        "error_fraction": None if compiled is None else (estimated - compiled) / compiled,
        "compiler": verdict,
        "compile_seconds": round(time.perf_counter() - began, 1),
        "parts": {part.name: part.bytes for part in parts},
    }


def peak_of(analysis: Any, platform_name: str) -> int:
    """Return the compiler's peak: its own figure on a TPU, arguments + outputs + temporaries − aliased on a CPU."""
    if platform_name == "tpu":
        return int(analysis.peak_memory_in_bytes)
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


def tpu_chip() -> Devices | None:
    """Return a TPU v5e chip that exists only for the compiler; None without libtpu."""
    try:
        from jax.experimental import topologies

        topology = topologies.get_topology_desc("v5e:1x1", "tpu", chips_per_host_bounds=(1, 1, 1))
    except (RuntimeError, ValueError, ImportError) as error:
        print(f"no TPU compiler: {error}")
        return None
    return Devices(
        requested="tpu",
        platform="tpu",
        kind="TPU v5e (compiled for, not present)",
        chosen_because="benchmark",
        memory_bytes=int(15.75 * GIB),
        memory_source="cap that the compiler states",
        list=tuple(topology.devices),
    )


def cases() -> Iterator[tuple[str, Config, ModelSpec, Devices]]:
    """Yield every case: name, run, model, target."""
    cpu = choose_devices("cpu", 1)
    for name, (model, settings) in CPU_CASES.items():
        yield name, configured(model, settings), resolve(model).spec, cpu
    chip = tpu_chip()
    if chip:
        for name, settings in TPU_CASES.items():
            yield f"Gemma-2B, {name}", configured("gemma-2b", settings), spec_from_config(GEMMA_2B), chip


def main() -> None:
    """Measure every case, print its row, write the file."""
    rows = []
    for case in cases():
        row = measured(*case)
        rows.append(row)
        error = "-" if row["error_fraction"] is None else f"{row['error_fraction']:+.0%}"
        compiled = "-" if row["compiled_bytes"] is None else f"{row['compiled_bytes'] / GIB:.3f}"
        estimated = f"{row['estimated_bytes'] / GIB:.3f}"
        print(f"{row['case']:<42} estimated {estimated:>7} GiB  compiler {compiled:>7} GiB  {error}", flush=True)
        RESULT.write_text(json.dumps({"environment": environment(), "cases": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
