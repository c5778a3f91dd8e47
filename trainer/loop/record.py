"""Record the compiled step in the manifest: its groups `model`, `training` and `effective`.

Values that a configuration could get wrong (optimizer, dtypes, donation, sharding, remat) are read back from the
compiled program; see `compilation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import jax

from evidence.effective import settings_in_manifest
from trainer.config.tree import Config
from trainer.data.batches import global_batch_size
from trainer.loop import compilation
from trainer.loop.compilation import Compiled
from trainer.loop.optimizer import build_schedule, detect_optimizer, evaluate_schedule
from trainer.loop.programs import Steps
from trainer.loop.step import TrainState
from trainer.loop.task import Task
from trainer.model.decoder import parameter_count, params_sha256
from trainer.model.model import combine
from trainer.model.quantised import is_quantised, is_scales
from trainer.model.source import describe_shrinking
from trainer.model.stacks import Params, is_stack
from trainer.objectives.data import Data
from trainer.recorder.recorder import Recorder


def record_program(
    recorder: Recorder,
    steps: Steps,
    state: TrainState,
    frozen: Params,
    task: Task,
    data: Data,
    *,
    weights: str,
    forced: bool,
) -> None:
    """Record the model and the effective settings of the compiled steps, given the state before the first one.

    `weights` is the origin of the parameters, pretrained or random; `forced` tells whether --force overrode a refusal.
    """
    program = steps.longest
    model = model_group(task, program, state, frozen, weights=weights)
    training = training_group(task, program, state, frozen, forced=forced)
    recorder.set(model=model, training=training)
    recorder.set(effective=_effective_group(recorder.manifest, task, data))
    recorder.update("result", compile_seconds=steps.seconds)
    compiled = f"{'loaded from the compilation cache' if program.is_kept else 'compiled'} in {steps.seconds:.1f} s"
    if len(steps.by_length) > 1:
        each = ", ".join(f"train_{length} in {step.seconds:.1f} s" for length, step in steps.by_length.items())
        compiled = f"compiled for {len(steps.by_length)} lengths of sequences: {each}"
    donation, dtypes = training["donation"], model["dtypes"]
    trained = f", {parameter_count(state.trained):,} trained" if frozen else ""
    donated = {True: "state donated", False: "state not donated", None: "donation unknown"}[donation["effective"]]
    recorder.log(
        "info",
        "compiled",
        f"{model['parameters']:,} parameters{trained}; {training['optimizer']['name']}, {dtypes['params']} params, "
        f"{dtypes['compute']} compute, {donated}; {compiled}",
        compile_seconds=steps.seconds,
        lengths=list(steps.by_length),
        family=model["family"],
        weights_sha256=model["weights_sha256"],
        state_bytes=donation["state_bytes"],
        aliased_bytes=donation["aliased_bytes"],
    )


def model_group(task: Task, program: Compiled, state: TrainState, frozen: Params, *, weights: str) -> dict[str, Any]:
    """Return the group `model`; dtypes are the most common ones of parameters and traced matrix products."""
    params, source = combine(state.trained, frozen), task.model.source
    stored = {name: value for name, value in (frozen or params).items() if not is_quantised(name)}
    trained = {"trained": compilation.most_common_dtype(state.trained)} if frozen else {}
    compute = compilation.compute_dtype(program.jaxpr)
    dtypes = {"params": compilation.most_common_dtype(stored), **trained, "compute": compute}
    return {
        "name": task.config.model.name,
        "revision": source.revision,
        "family": source.spec.family,
        "parameters": parameter_count({name: value for name, value in params.items() if not is_scales(name)}),
        "trainable_parameters": parameter_count(state.trained),
        "weights": weights,
        **({"made_small": small} if (small := describe_shrinking(source)) else {}),
        "weights_sha256": params_sha256(params),
        **({"frozen_sha256": params_sha256(frozen)} if frozen else {}),
        "tokenizer_sha256": source.tokenizer_sha256(),
        "dtypes": dtypes,
    }


def training_group(task: Task, program: Compiled, state: TrainState, frozen: Params, *, forced: bool) -> dict[str, Any]:
    """Return the group `training`: the effective settings of a compiled step, of its state and frozen parameters."""
    config, devices = task.config, task.mesh.size
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.opt_state))
    return {
        "method": task.model.method.kind,
        "optimizer": {
            "name": detect_optimizer(state.opt_state),
            "state": compilation.most_common_dtype(state.opt_state).replace("uint8", "int8"),
            "state_bytes": state_bytes,
            "state_bytes_per_parameter": state_bytes / parameter_count(state.trained),
        },
        "schedule": _schedule_group(config),
        "steps_planned": config.limits.steps,
        "steps_done": int(state.step),
        "batch_size": global_batch_size(config, devices=devices),
        "microbatch_size": config.batch.microbatch_size,
        "accumulation_steps": config.batch.accumulation_steps,
        "tokens_per_step": task.tokens_per_step,
        "sequence_length": config.data.max_length,
        "remat": compilation.remat_kind(program.jaxpr, besides=task.objective.rematerialised_blocks),
        "layers": "scanned" if any(map(is_stack, (*state.trained, *frozen))) else "unrolled",
        "attention": compilation.attention_kind(program.jaxpr),
        "loss_chunk_tokens": config.memory.loss_chunk_tokens,
        "donation": compilation.donation(program.executable, state),
        "mesh": {"devices": devices, "shard_params": compilation.is_split(state)},
        "seed": config.seed,
        "forced": forced,
    }


def _effective_group(manifest: Mapping[str, Any], task: Task, data: Data) -> dict[str, Any]:
    """Return the group `effective`: the effective value of each setting, by its path in the configuration."""
    effective: dict[str, Any] = {
        "method": task.model.method.manifest_entry(task.model.adapters),
        "objective": task.objective.manifest_entry(),
        "data": {"packing": "segments" in task.objective.described(1), "buckets": len(task.lengths)},
    }
    for key, value in settings_in_manifest(manifest).items():
        *groups, name = key.split(".")
        reduce(lambda parent, group: parent.setdefault(group, {}), groups, effective)[name] = value
    for group, values in data.effective().items():
        effective[group] = effective.get(group, {}) | values
    return effective


def _schedule_group(config: Config) -> dict[str, Any]:
    """Return name, warm-up, peak and end of the learning rate schedule over the planned steps."""
    optimizer, last = config.optimizer, config.limits.steps - 1
    schedule = build_schedule(optimizer, steps=config.limits.steps)
    peak = min(max(optimizer.warmup_steps - 1, 0), last)  # the rate falls from the end of the warm-up
    return {
        "name": optimizer.schedule,
        "warmup_steps": optimizer.warmup_steps,
        "peak_learning_rate": evaluate_schedule(schedule, peak),
        "final_learning_rate": evaluate_schedule(schedule, last),
    }
