"""The operations of a step, counted in the traced program: products of matrices, loops as often as they run."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from trainer.config.tree import Config, MeshConfig
from trainer.loop.mesh import shapes_mesh
from trainer.loop.program import train_program
from trainer.loop.task import Task
from trainer.model.files.source import ModelSource


def step_operations(task: Task) -> float:
    """Return the floating-point operations of one optimizer step, over all devices.

    Only products of matrices count, 2 for each multiplication with its addition, recomputed ones each time. Each device
    computes its own sequences, as many as every other, so the step of one device says what all of them compute.
    """
    config = task.config
    return task.mesh.size * _of_one_device(replace(config, name="", mesh=MeshConfig()), task.model.source)


@lru_cache(maxsize=64)
def _of_one_device(config: Config, source: ModelSource) -> float:
    """Return the operations of a step on a device of its own; traced once for all machines of a table.

    Layers are alike, so a step with one layer and a step with two say what one layer takes.
    """
    layers = source.spec.layers
    one = operations(_traced(config, source, min(1, layers)))
    if layers == 1:
        return one
    two = operations(_traced(config, source, 2))
    return one + (layers - 1) * (two - one)


def _traced(config: Config, source: ModelSource, layers: int) -> Any:
    """Return the traced step of a model's first layers on one device."""
    fewer = replace(source, spec=replace(source.spec, blocks=source.spec.blocks[:layers]))
    program = train_program(Task.of(config, fewer, shapes_mesh(1)))
    return program.function.trace(*program.arguments, **program.settings).jaxpr


def operations(jaxpr: Any) -> float:
    """Return the operations of all products of matrices in a traced program and in what it calls.

    `[2 3] @ [3 5]` is 2 · 2 · 3 · 5 = 60 operations; in a loop of 4 rounds, 240.
    """
    total: float = 0.0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "dot_general":
            total += product_operations(equation)
        rounds = int(equation.params.get("length", 1)) if equation.primitive.name == "scan" else 1
        total += rounds * sum(operations(inner) for value in equation.params.values() for inner in _inside(value))
    return total


def product_operations(equation: Any) -> float:
    """Return the operations of one product: twice its result's size times the length that is summed over."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    return 2.0 * float(math.prod(result) * math.prod(left[axis] for axis in contracted))


def _inside(value: Any) -> list[Any]:
    """Return the programs that a parameter of an equation holds."""
    if isinstance(value, list | tuple):
        return [inner for each in value for inner in _inside(each)]
    return [value] if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns") else []
