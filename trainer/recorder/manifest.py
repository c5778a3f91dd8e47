"""The manifest before the first step: everything that is known by then, and null for everything that is not.

Values that a configuration could get wrong (optimizer, element types, donation, sharding, remat) are read back from
what was built; see `effective.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import optax

from schemas.catalog import VERSION
from trainer.config.tree import Config
from trainer.loop import effective
from trainer.loop.optimizer import build_schedule, learning_rate_at, recognised_optimizer
from trainer.loop.program import Program, batch_size_of, chunk_positions_of
from trainer.loop.step import TrainState
from trainer.model.params import parameter_count
from trainer.objectives.cross_entropy import in_several_chunks
from trainer.planning.devices import Devices
from trainer.recorder.code import code_identity
from trainer.recorder.environment import environment
from trainer.recorder.recorder import NO_RESULT, now


def first_manifest(
    *,
    run_id: str,
    command: list[str],
    config: Config,
    devices: Devices,
    dataset: dict[str, Any],
    parent: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the document `run_manifest.json` of a run that has just begun."""
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "mode": config.mode,
        "status": "running",
        "started_at": now(),
        "finished_at": None,
        "command": command,
        "code": code_identity(),
        "environment": environment(),
        "devices": devices.document(),
        "model": None,
        "dataset": dataset,
        "training": None,
        "result": dict(NO_RESULT),
        "exit": None,
        "parent": parent,
        "artifacts": [],
    }


def training_of(
    config: Config, program: Program, state: TrainState, devices: Devices, *, parameters: int, forced: bool
) -> dict[str, Any]:
    """Return the group `training`: the effective settings of a compiled step and its state."""
    batch_size = batch_size_of(config, devices=len(devices.list))
    state_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.opt_state))
    return {
        "method": config.method.kind,
        "optimizer": {
            "name": recognised_optimizer(state.opt_state),
            "state_bytes": state_bytes,
            "state_bytes_per_parameter": state_bytes / parameters,
        },
        "schedule": schedule_of(config),
        "steps_planned": config.limits.steps,
        "steps_done": int(state.step),
        "batch_size": batch_size,
        "microbatch_size": config.batch.microbatch_size,
        "accumulation_steps": config.batch.accumulation_steps,
        "tokens_per_step": batch_size * config.data.max_length,
        "sequence_length": config.data.max_length,
        "remat": "layer" if remat_is_effective(program, config) else "none",
        "loss_chunk_tokens": config.memory.loss_chunk_tokens,
        "donation": effective.donation(program.compiled, state),
        "mesh": {"devices": len(devices.list), "shard_params": effective.is_split(state)},
        "seed": config.seed,
        "forced": forced,
    }


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


def remat_is_effective(program: Program, config: Config) -> bool:
    """Return whether the traced step recomputes layers: more rematerialised blocks than the loss alone has."""
    blocks_of_loss = int(in_several_chunks(config.data.max_length, chunk_positions_of(config)))
    return effective.rematerialised_blocks(program.jaxpr) > blocks_of_loss


def model_of(
    *,
    name: str,
    revision: str | None,
    family: str,
    weights: str,
    params: dict[str, Any],
    weights_sha256: str,
    compute: str,
) -> dict[str, Any]:
    """Return the group `model`; element types are those of the arrays and of the traced products."""
    count = parameter_count(params)
    stored = {str(value.dtype) for value in params.values()}
    if len(stored) != 1:
        message = f"parameters of several types: {sorted(stored)}"
        raise AssertionError(message)
    return {
        "name": name,
        "revision": revision,
        "family": family,
        "parameters": count,
        "trainable_parameters": count,
        "weights": weights,
        "weights_sha256": weights_sha256,
        "dtypes": {"params": stored.pop(), "compute": compute},
    }
