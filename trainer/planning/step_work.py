"""What one device computes and moves in a step, counted in the traced program."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from jax.interpreters.partial_eval import dce_jaxpr

from evidence.targets import Target
from trainer.config.tree import Config, MeshConfig
from trainer.loop.mesh import shapes_mesh
from trainer.loop.programs import train_program
from trainer.loop.task import Task
from trainer.model.source import ModelSource
from trainer.planning.duration.roofline import GATHERS, exchanged_bytes
from trainer.planning.estimate.workload import ITEM_BYTES, bits_of, count_of


class Work(NamedTuple):
    """What is computed and moved."""

    flops: float
    """Floating-point operations of products of matrices: 2 for each multiplication with its addition."""
    moved: float
    """Bytes that these products read and write: factors and results. What lies between them is fused into them."""

    def plus(self, other: Work, times: float = 1.0) -> Work:
        """Return this work and so many times another."""
        return Work(self.flops + times * other.flops, self.moved + times * other.moved)


def step_work(task: Task) -> Work:
    """Return the work of one device in one optimizer step; what is computed again counts each time.

    Each device computes its own sequences, as many as every other, with all parameters.
    """
    return _of_one_device(replace(task.config, name="", mesh=MeshConfig()), task.model.source)


def useful_flops(task: Task) -> float:
    """Return the operations of one device in one optimizer step without those that are computed again, or unpacked."""
    config = task.config
    memory = replace(config.memory, remat="none", loss_chunk_tokens=None, mlp_chunk_tokens=None)
    method = replace(config.method, base="plain")
    whole = replace(config, name="", mesh=MeshConfig(), memory=memory, method=method)
    return _of_one_device(whole, task.model.source).flops


def ideal_seconds(task: Task, target: Target) -> float | None:
    """Return how long a step of nothing but useful operations takes at the device's peak. None: not known."""
    peak = target.peak_flops.get(task.config.precision.compute)
    return None if peak is None else useful_flops(task) / peak


def shared_work(jaxpr: Any, task: Task) -> Work:
    """Return the work of one device in a step that is traced for all of them.

    Sequences are divided; parameters are not: what a device has of the others, it reads, and writes gradients as large.
    """
    devices, whole = task.mesh.size, needed_work(jaxpr)
    return Work(flops=whole.flops / devices, moved=whole.moved / devices + linked_bytes(task, divided=True))


def linked_bytes(task: Task, *, divided: bool) -> float:
    """Return the bytes that one device has from the others in a step, in the type that is computed in.

    Args:
        task: what is trained.
        divided: whether parameters are divided over the devices.
    """
    item = ITEM_BYTES[task.config.precision.compute]
    return exchanged_bytes(
        weights_bytes=item * count_of(task.model.base),
        gradients_bytes=item * count_of(task.model.trained),
        devices=task.mesh.size,
        microbatches=task.config.batch.accumulation_steps,
        divided=divided,
        gathers=GATHERS if task.config.memory.remat != "none" else GATHERS - 1,
    )


@lru_cache(maxsize=64)
def _of_one_device(config: Config, source: ModelSource) -> Work:
    """Return the work of a step on a device of its own; traced once for all machines of a table.

    Layers are alike, so a step with one layer and a step with two say what one layer takes.
    """
    layers = source.spec.layers
    one = needed_work(_traced(config, source, min(1, layers)))
    if layers == 1:
        return one
    two = needed_work(_traced(config, source, 2))
    return one.plus(two.plus(one, -1.0), layers - 1)


def _traced(config: Config, source: ModelSource, layers: int) -> Any:
    """Return the traced step of a model's first layers on one device."""
    fewer = replace(source, spec=replace(source.spec, blocks=source.spec.blocks[:layers]))
    program = train_program(Task.of(config, fewer, shapes_mesh(1)))
    return program.function.trace(*program.arguments, **program.settings).jaxpr


def needed_work(jaxpr: Any) -> Work:
    """Return the work of a traced program without what no result depends on: a compiler leaves it out.

    Of adapters that is a third: the gradients of the weights beside them.
    """
    inside = jaxpr.jaxpr
    return work_of(dce_jaxpr(inside, [True] * len(inside.outvars))[0])


def work_of(jaxpr: Any) -> Work:
    """Return the work of all products of matrices in a traced program and in what it calls.

    `[2 3] @ [3 5]` is 2 · 2 · 3 · 5 = 60 operations on (6 + 15 + 10) numbers; in a loop of 4 rounds, 4 times that.
    """
    total = Work(0.0, 0.0)
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "dot_general":
            total = total.plus(product_work(equation))
        rounds = int(equation.params.get("length", 1)) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            for inner in _inside(value):
                total = total.plus(work_of(inner), rounds)
    return total


def product_work(equation: Any) -> Work:
    """Return the work of one product; its operations are twice its result's size times the length that is summed."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    flops = 2.0 * float(math.prod(result) * math.prod(left[axis] for axis in contracted))
    arrays = [each.aval for each in (*equation.invars, *equation.outvars)]
    return Work(flops, sum(math.prod(array.shape) * bits_of(array) / 8 for array in arrays))


def _inside(value: Any) -> list[Any]:
    """Return the programs that a parameter of an equation holds."""
    if isinstance(value, list | tuple):
        return [inner for each in value for inner in _inside(each)]
    return [value] if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns") else []
