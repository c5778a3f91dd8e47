"""What a compiled step is, written into the manifest: groups `model`, `training` and `effective`.

Values that a configuration could get wrong (optimizer, element types, donation, sharding, remat) are read back from
what was built; see `effective.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax
import optax

from evidence.effective import settings_in_manifest
from trainer.config.tree import Config
from trainer.data.batches import global_batch_size
from trainer.loop import effective
from trainer.loop.compilation import Compiled
from trainer.loop.optimizer import build_schedule, detect_optimizer, detect_state_dtype, learning_rate_at
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
    """Write down the model and the effective settings, read back from what was built.

    Args:
        recorder: of the run.
        steps: its compiled steps.
        state: before the run's first step.
        frozen: the parameters that do not learn.
        task: what the program is for.
        data: that it learns from.
        weights: pretrained or random: where the parameters first came from.
        forced: whether --force overrode a refusal.
    """
    program = steps.longest
    of_model = model_group(task, program, state, frozen, weights=weights)
    training = training_group(task, program, state, frozen, forced=forced)
    recorder.set(model=of_model, training=training)
    recorder.set(effective=effective_group(recorder.manifest, task, data))
    recorder.update("result", compile_seconds=steps.seconds)
    donated = {True: "state donated", False: "state not donated", None: "donation unknown"}
    frozen_too = f", {parameter_count(state.trained):,} of them trained" if frozen else ""
    recorder.log(
        "info",
        "compiled",
        f"{of_model['parameters']:,} parameters{frozen_too}; {training['optimizer']['name']}, "
        f"{of_model['dtypes']['params']} params, {of_model['dtypes']['compute']} compute, "
        f"{donated[training['donation']['effective']]}; {compiled_in(steps)}",
        compile_seconds=steps.seconds,
        lengths=list(steps.by_length),
        family=of_model["family"],
        weights_sha256=of_model["weights_sha256"],
        state_bytes=training["donation"]["state_bytes"],
        aliased_bytes=training["donation"]["aliased_bytes"],
    )


def compiled_in(steps: Steps) -> str:
    """Return how long compiling took, of each length where there are several, or reading what was compiled before."""
    if len(steps.by_length) == 1:
        return f"compiled {'before, read ' if steps.longest.is_kept else ''}in {steps.seconds:.1f} s"
    each = ", ".join(f"train_{length} in {step.seconds:.1f} s" for length, step in steps.by_length.items())
    return f"compiled for {len(steps.by_length)} lengths of sequences: {each}"


def model_group(task: Task, program: Compiled, state: TrainState, frozen: Params, *, weights: str) -> dict[str, Any]:
    """Return the group `model`; element types are those of most parameters and of the traced products."""
    params = combine(state.trained, frozen)
    stored = {name: value for name, value in (frozen or params).items() if not is_quantised(name)}
    trained = {"trained": most_common_dtype(state.trained)} if frozen else {}
    return {
        "name": task.config.model.name,
        "revision": task.model.source.revision,
        "family": task.model.source.spec.family,
        "parameters": parameter_count({name: value for name, value in params.items() if not is_scales(name)}),
        "trainable_parameters": parameter_count(state.trained),
        "weights": weights,
        **({"made_small": small} if (small := describe_shrinking(task.model.source)) else {}),
        "weights_sha256": params_sha256(params),
        **({"frozen_sha256": params_sha256(frozen)} if frozen else {}),
        "tokenizer_sha256": task.model.source.tokenizer_sha256(),
        "dtypes": {"params": most_common_dtype(stored), **trained, "compute": effective.compute_dtype(program.jaxpr)},
    }


def most_common_dtype(params: Params) -> str:
    """Return the element type of most numbers."""
    stored = Counter[str]()
    for value in params.values():
        stored[str(value.dtype)] += value.size
    return stored.most_common(1)[0][0]


def training_group(task: Task, program: Compiled, state: TrainState, frozen: Params, *, forced: bool) -> dict[str, Any]:
    """Return the group `training`: the effective settings of a compiled step, its state, what is frozen."""
    config, devices = task.config, task.mesh.size
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.opt_state))
    return {
        "method": task.model.method.kind,
        "optimizer": {
            "name": detect_optimizer(state.opt_state),
            "state": detect_state_dtype(state.opt_state),
            "state_bytes": state_bytes,
            "state_bytes_per_parameter": state_bytes / parameter_count(state.trained),
        },
        "schedule": schedule_of(config),
        "steps_planned": config.limits.steps,
        "steps_done": int(state.step),
        "batch_size": global_batch_size(config, devices=devices),
        "microbatch_size": config.batch.microbatch_size,
        "accumulation_steps": config.batch.accumulation_steps,
        "tokens_per_step": task.tokens_per_step,
        "sequence_length": config.data.max_length,
        "remat": effective.remat_kind(program.jaxpr, besides=task.objective.rematerialised_blocks),
        "layers": "scanned" if any(map(is_stack, (*state.trained, *frozen))) else "unrolled",
        "attention": effective.attention_kind(program.jaxpr),
        "loss_chunk_tokens": config.memory.loss_chunk_tokens,
        "donation": effective.donation(program.executable, state),
        "mesh": {"devices": devices, "shard_params": effective.is_split(state)},
        "seed": config.seed,
        "forced": forced,
    }


def effective_group(manifest: Mapping[str, Any], task: Task, data: Data) -> dict[str, Any]:
    """Return the group `effective`: what came of each key of the configuration, under the configuration's own paths."""
    found: dict[str, Any] = {
        "method": task.model.method.manifest_entry(task.model.adapters),
        "objective": task.objective.manifest_entry(),
        "data": {"packing": "segments" in task.objective.described(1), "buckets": len(task.lengths)},
    }
    for key, value in settings_in_manifest(manifest).items():
        *groups, name = key.split(".")
        holder = found
        for group in groups:
            holder = holder.setdefault(group, {})
        holder[name] = value
    for group, values in data.effective().items():
        found[group] = found.get(group, {}) | values
    return found


def schedule_of(config: Config) -> dict[str, Any]:
    """Return the learning rate as the schedule itself gives it over the planned steps."""
    schedule = build_schedule(config.optimizer, steps=config.limits.steps)
    return {
        "name": config.optimizer.schedule,
        "warmup_steps": config.optimizer.warmup_steps,
        "peak_learning_rate": peak_of(schedule, config),
        "final_learning_rate": learning_rate_at(schedule, config.limits.steps - 1),
    }


def peak_of(schedule: optax.Schedule, config: Config) -> float:
    """Return the largest learning rate: it rises to the end of the warm-up and falls from there."""
    last_of_warmup = min(max(config.optimizer.warmup_steps - 1, 0), config.limits.steps - 1)
    return learning_rate_at(schedule, last_of_warmup)
