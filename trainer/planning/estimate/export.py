"""What making the plain model of a run's parameters needs, after training and in a command of its own."""

from __future__ import annotations

import math

from trainer.loop.task import Task
from trainer.planning.estimate.part import Part, total_bytes
from trainer.planning.estimate.workload import bytes_of, workload_of


def host_need(task: Task, state_bytes: int) -> tuple[int, str]:
    """Return what passes through the memory of the machine around an accelerator at once, and what it is.

    That is a checkpoint's copy of the whole state, or the plain model that is exported or merged, whichever is more.

    Args:
        task: the run; its parameters as shapes.
        state_bytes: of the train state, over all devices.
    """
    shards = workload_of(task, platform="cpu").shards
    plain = shards * total_bytes(export_parts(task, "cpu"))
    merged = "the plain model with its adapters merged" if task.model.adapters else "the plain model that is exported"
    return (plain, merged) if plain > state_bytes else (state_bytes, "the state that is copied when it is saved")


def export_parts(task: Task, platform: str) -> tuple[Part, ...]:
    """Return what making the plain model needs: its parameters, and adapters until they are merged into them."""
    work = workload_of(task, platform=platform)
    plain = bytes_of(task.model.base) // work.shards
    merged = max(math.prod(shape.shape) * 4 for shape in task.model.base.values()) if task.model.adapters else 0
    return (
        Part(name="params", bytes=plain, because="the plain model"),
        Part(name="adapters", bytes=bytes_of(task.model.trained) // work.shards if merged else 0, because="adapters"),
        Part(name="merging", bytes=merged // work.shards, because="the largest array in float32 while it is merged"),
    )
