"""How far layers are computed again where `memory.remat` is auto: the cheapest that fits by the sums."""

from __future__ import annotations

from dataclasses import replace

from trainer.loop.task import Task
from trainer.model.stacks import Remat
from trainer.planning.estimate.part import error_of, total_bytes
from trainer.planning.estimate.programs import estimates

CHEAPEST_FIRST: tuple[Remat, ...] = ("none", "dots", "layer")


def with_remat(task: Task, *, available_bytes: int | None) -> Task:
    """Return a task with what becomes of `auto`; any other as it is.

    A kind is taken where the train step fits with the whole band of its sum; where none does or the memory is not
    known, `layer`. A quantised base is never kept whole, for its kernels would be.

    Args:
        task: what is trained, and where.
        available_bytes: memory of each device. None: not known.
    """
    config = task.config
    if config.memory.remat != "auto":
        return task
    kinds = CHEAPEST_FIRST[config.method.base != "plain" :]
    found = task
    for kind in kinds if available_bytes is not None else kinds[-1:]:
        found = task.changed(replace(config, memory=replace(config.memory, remat=kind)))
        parts = estimates(found, platform=task.platform or "cpu")["train"]
        most = total_bytes(parts) * (1 + error_of(parts, available_bytes))
        if available_bytes is not None and most <= available_bytes:
            break
    return replace(found, is_remat_open=True)
