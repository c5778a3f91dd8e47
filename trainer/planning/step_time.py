"""The time of a step on a target: operations of the traced program and the roofline, narrowed by measured runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from evidence.rules.spending.figures import Band
from evidence.targets.target import Target
from trainer.config.tree import Config, MeshConfig
from trainer.loop.mesh import shapes_mesh
from trainer.loop.programs import train_program
from trainer.loop.task import Task
from trainer.model.files.source import ModelSource
from trainer.planning.calibration import Measured, said_of
from trainer.planning.duration.roofline import (
    GATHERS,
    LIKELY_EFFICIENCY,
    at_least,
    dispatch_seconds,
    exchanged_bytes,
    floor_seconds,
    narrowed,
    step_band,
)
from trainer.planning.estimate.workload import ITEM_BYTES, count_of
from trainer.planning.program_memory import ProgramMemory


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


NOMINAL_FLOPS = 1e9
"""Operations a second that a device of unknown speed is measured against; alone they say nothing."""


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """One optimizer step on one device of a target."""

    band: Band | None
    """Its time. None: the device's speed is not known, and none of its runs was measured."""
    flops: float
    """Floating-point operations."""
    moved_bytes: float
    """Bytes read from and written to main memory, at least."""
    because: str
    """What decides, and what the band is from."""


def predicted_step(
    task: Task,
    target: Target,
    programs: Sequence[ProgramMemory],
    *,
    measured: Sequence[Measured] = (),
    operations: float | None = None,
) -> PredictedStep:
    """Return how long a step takes, what one device moves and computes in it, and what decides.

    Args:
        task: what is trained.
        target: where.
        programs: what its programs need; `train` among them.
        measured: runs on the same kind of device.
        operations: of one step over all devices. None: they are counted.
    """
    flops = (step_operations(task) if operations is None else operations) / task.mesh.size
    train = next(program for program in programs if program.name == "train")
    moved = float(moved_bytes(train, task.config.batch.accumulation_steps))
    band, because = unmeasured_band(task, target, flops=flops, moved=moved)
    if measured:
        band = at_least(narrowed(band, [each.step_ratio for each in measured]), step_dispatch(task, target))
        because = f"{because}; {said_of(measured)}"
    elif not is_known(task, target):
        return PredictedStep(band=None, flops=flops, moved_bytes=moved, because="the device's speed is not known")
    else:
        because += f"; {LIKELY_EFFICIENCY:.0%} of them is likely, and no measured step has narrowed the band"
    return PredictedStep(band=band, flops=flops, moved_bytes=moved, because=because)


def is_known(task: Task, target: Target) -> bool:
    """Return whether a target's speed in a run's element type is known."""
    return task.config.precision.compute in target.peak_flops and target.memory_bandwidth is not None


def unmeasured_band(task: Task, target: Target, *, flops: float, moved: float) -> tuple[Band, str]:
    """Return the time of a step where nothing was measured, and what decides it.

    Of a device of unknown speed it is what the step would take at `NOMINAL_FLOPS`: only its ratio to a measured time
    means something.

    Args:
        task: what is trained.
        target: where.
        flops: operations of one device.
        moved: bytes that it reads and writes.
    """
    peak, bandwidth = target.peak_flops.get(task.config.precision.compute), target.memory_bandwidth
    if peak is None or bandwidth is None:
        return step_band(flops / NOMINAL_FLOPS), f"{flops:.3g} operations"
    linked, dispatch = linked_bytes(task), step_dispatch(task, target)
    floor = floor_seconds(
        flops=flops,
        peak_flops=peak,
        moved_bytes=moved,
        bandwidth=bandwidth,
        linked_bytes=linked,
        link_bandwidth=target.interconnect,
    )
    limits = {"arithmetic": flops / peak, "memory": moved / bandwidth, "dispatch": dispatch}
    said = f"{flops:.3g} operations in {flops / peak:.3g} s, {moved:.3g} bytes in {moved / bandwidth:.3g} s"
    if linked and target.interconnect is not None:
        limits["the link between devices"] = linked / target.interconnect
        said += f", {linked:.3g} bytes between devices in {linked / target.interconnect:.3g} s"
    decides = max(limits, key=lambda name: limits[name])
    started = f"; {dispatch:.3g} s to start whatever is computed" if decides == "dispatch" else ""
    return step_band(max(floor, dispatch)), f"{decides} decides: {said} at the device's peaks{started}"


def step_dispatch(task: Task, target: Target) -> float:
    """Return the seconds that a step takes on a target whatever it computes."""
    recomputes = task.config.memory.remat == "layer"
    divided = task.mesh.size > 1 and task.config.mesh.shard_params
    return dispatch_seconds(
        target.platform,
        layers=task.model.source.spec.layers,
        passes=4 if recomputes else 3,
        microbatches=task.config.batch.accumulation_steps,
        gathers=(GATHERS if recomputes else GATHERS - 1) if divided else 0,
    )


def linked_bytes(task: Task) -> float:
    """Return the bytes that one device receives from the others in a step, in the type that is computed in."""
    item = ITEM_BYTES[task.config.precision.compute]
    return exchanged_bytes(
        weights_bytes=item * count_of(task.model.base),
        gradients_bytes=item * count_of(task.model.trained),
        devices=task.mesh.size,
        microbatches=task.config.batch.accumulation_steps,
        divided=task.config.mesh.shard_params,
        gathers=GATHERS if task.config.memory.remat == "layer" else GATHERS - 1,
    )


def moved_bytes(train: ProgramMemory, microbatches: int) -> int:
    """Return the bytes that one device reads and writes of its memory in a step, at least.

    The state is read and written once; parameters are read in the forward, the recomputed and the backward pass of each
    microbatch; what is kept besides is written and read.
    """
    state = sum(part.bytes for part in train.parts if part.name in ("params", "opt_state"))
    weights = sum(part.bytes for part in train.parts if part.name in ("params", "frozen"))
    rest = train.peak_bytes - state - sum(part.bytes for part in train.parts if part.name == "frozen")
    return 2 * state + microbatches * (3 * weights + 2 * max(rest, 0))
