"""What making the plain model of a run's parameters needs, after training and in a command of its own."""

from __future__ import annotations

import math

from trainer.loop.task import Task
from trainer.planning.estimate.part import Part
from trainer.planning.estimate.workload import bytes_of, workload_of


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
