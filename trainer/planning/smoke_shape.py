"""Resolve `model.shape: auto` of a smoke run: the model's own shape if it fits and is quick, otherwise a small one.

The choice is written into the recorded configuration, so that the run can be repeated anywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evidence.targets import Target
from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.loop.task import Task, shapes_mesh
from trainer.model.source import resolve_for_planning
from trainer.planning.formula import count_params, estimate, total_bytes
from trainer.planning.memory import limit_bytes
from trainer.planning.subject import assumed_eval_shape, devices_used
from trainer.runtime import choose_devices, target_from

QUICK_SECONDS = 120.0
UNKNOWN_FLOPS = 5e10
"""Assumed operations per second of a device that is not in the table: two CPU cores reach 5e10 to 2e11."""


def resolve_shape_here(config: Config, *, device_is_stated: bool) -> Config:
    """Resolve `model.shape: auto` for this machine.

    Args:
        config: The run.
        device_is_stated: Whether a flag requested the device. Otherwise an absent device of the configuration is
            replaced by what is present.

    Raises:
        ProblemError: Exit code 3; there are too few devices.
    """
    if config.model.shape != "auto":
        return config
    try:
        devices = choose_devices(config.mesh.device, config.mesh.devices)
    except ProblemError:
        if device_is_stated:
            raise
        config = replace(config, mesh=replace(config.mesh, device="auto", devices=None))
        devices = choose_devices("auto", None)
    return resolve_shape(config, target_from(devices))


def resolve_shape(config: Config, target: Target) -> Config:
    """Resolve `model.shape: auto` for a target; a configuration that cannot be built keeps the model's own shape."""
    if config.model.shape != "auto":
        return config
    own = replace(config, model=replace(config.model, shape="own"))
    try:
        return own if _fits_and_is_quick(own, target) else shrink(own)
    except ProblemError:
        return own


def _fits_and_is_quick(config: Config, target: Target) -> bool:
    devices, eval_shape = devices_used(config, target), assumed_eval_shape(config)
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices), platform=target.platform)
    parts = estimate(task, platform=target.platform, eval_shape=eval_shape)
    need = max(total_bytes(program) for name, program in parts.items() if name != "export")
    tokens = 4 * config.limits.steps * task.tokens_per_step  # forward, backward and recomputation
    if eval_shape is not None:
        evaluations = 2 if config.evaluation.baseline else 1
        answer = eval_shape.longest_tokens + config.evaluation.samples * config.evaluation.max_new_tokens
        tokens += evaluations * eval_shape.prompts * answer
    flops = devices * target.peak_flops.get(config.precision.compute, UNKNOWN_FLOPS / devices)
    limit = limit_bytes(task, target)
    return (limit is None or need <= limit) and 2 * count_params(task.model.base) * tokens / flops <= QUICK_SECONDS


def shrink(config: Config) -> Config:
    """Return a smoke run with a small model, and less of everything else."""

    def least(group: str, **most: int) -> Any:
        values = getattr(config, group)
        return replace(values, **{key: min(getattr(values, key), value) for key, value in most.items()})

    return replace(
        config,
        model=replace(config.model, shape="small", weights=None),
        data=least("data", generated_rows=1_000),
        batch=least("batch", microbatch_size=4, accumulation_steps=2),
        evaluation=least("evaluation", max_new_tokens=16, batch_size=50),
    )
