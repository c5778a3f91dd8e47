"""The time of a step on a target: operations of the traced program and the roofline, narrowed by measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evidence.targets import Target
from schemas.formats import quantity
from trainer.loop.rollouts import RolloutSize, rollout_size
from trainer.loop.task import Task
from trainer.planning.calibration import Measured, said_of
from trainer.planning.duration.roofline import (
    GATHERS,
    LIKELY_EFFICIENCY,
    at_least,
    band_document,
    dispatch_seconds,
    floor_seconds,
    narrowed,
    step_band,
)
from trainer.planning.estimate.workload import ITEM_BYTES, bits_of, count_of
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.spending_rules import Band
from trainer.planning.step_work import Work, linked_bytes, step_work


@dataclass(frozen=True, kw_only=True)
class PredictedRollout:
    """Drawing the completions of a step."""

    seconds: Band
    updates: int
    """Optimizer steps that learn from them."""
    because: str
    """What it is made of."""

    @property
    def of_step(self) -> Band:
        """The share of one optimizer step."""
        return self.seconds.times(1 / self.updates)


def predicted_rollout(task: Task, target: Target, size: RolloutSize) -> PredictedRollout | None:
    """Return how long drawing takes where every completion is as long as it may be, None where nobody can say.

    Prompts are read once a group. Each further token of all completions reads the parameters and all keys and values.
    """
    item, spec, devices = ITEM_BYTES[task.config.precision.compute], task.model.source.spec, task.mesh.size
    if not is_known(task, target):
        return None
    weights = sum(int(value.size) * min(bits_of(value) / 8, item) for value in task.model.shapes.values())
    cache = size.rows * size.slots * 2 * spec.layers * spec.kv_heads * spec.head_dim * item / devices
    each = 2.0 * count_of(task.model.base) + 4.0 * spec.layers * spec.heads * spec.head_dim * size.slots
    divided = devices > 1 and task.config.mesh.shard_params
    started = dispatch_seconds(target.platform, layers=spec.layers, passes=1, gathers=int(divided), calls=0)

    def passed(tokens: float, moved: float) -> Band:
        """Return the time of one pass over so many tokens of all devices."""
        floor = floor_seconds(
            flops=each * tokens / devices,
            peak_flops=target.peak_flops[task.config.precision.compute],
            moved_bytes=moved,
            bandwidth=target.memory_bandwidth,
            linked_bytes=weights * (devices - 1) / devices if divided else 0.0,
            link_bandwidth=target.interconnect,
        )
        return step_band(max(floor, started))

    reading, token = passed(size.prompts * size.width, weights), passed(size.rows, weights + cache)
    return PredictedRollout(
        seconds=reading.plus(token.times(size.new_tokens)),
        updates=size.updates,
        because=f"{quantity(size.prompts, 'prompt')} read once in {reading.likely:.2g} s, {size.rows:,} completions of "
        f"{size.new_tokens:,} tokens at {1000 * token.likely:.3g} ms a token"
        + (f", for {size.updates} updates" if size.updates > 1 else ""),
    )


NOMINAL_FLOPS = 1e9
"""Operations a second that a device of unknown speed is measured against; alone they say nothing."""


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """One optimizer step on one device of a target."""

    update: Band | None
    """Its time, drawing left out. None: the device's speed is not known, and none of its runs was measured."""
    flops: float
    """Floating-point operations of the update."""
    moved_bytes: float
    """Bytes that it reads from and writes to main memory, at least."""
    because: str
    """What decides, and what the band is from."""
    rollout: PredictedRollout | None = None
    """None: nothing is drawn, or its time is not known."""
    draws: bool = False
    """Whether it learns from completions that are drawn."""

    @property
    def band(self) -> Band | None:
        """The time of the whole step. None: not known."""
        if self.update is None or (self.draws and self.rollout is None):
            return None
        return self.update if self.rollout is None else self.update.plus(self.rollout.of_step)

    def rollout_document(self) -> dict[str, Any] | None:
        """Return the part of drawing as plan.json has it, None where nothing is drawn or its time is not known."""
        if self.rollout is None or self.update is None:
            return None
        drawn = self.rollout.of_step
        share = drawn.likely / (drawn.likely + self.update.likely)
        return {
            "seconds": band_document(drawn),
            "update_seconds": band_document(self.update),
            "fraction": round(share, 3),
            "because": f"Rolling out is likely {share:.0%} of a step, {drawn.likely:.3g} s: {self.rollout.because}; "
            f"the update takes {self.update.likely:.3g} s",
        }


def predicted_step(
    task: Task,
    target: Target,
    programs: Sequence[ProgramMemory],
    *,
    measured: Sequence[Measured] = (),
    work: Work | None = None,
) -> PredictedStep:
    """Return how long a step takes, what one device moves and computes in it, and what decides.

    Args:
        task: what is trained.
        target: where.
        programs: what its programs need; `train` among them.
        measured: runs on the same kind of device.
        work: of one device in a step, read from the compiled one. None: it is counted.
    """
    train = next(program for program in programs if program.name == "train")
    flops, moved = with_state(work or step_work(task), train)
    band, because = unmeasured_band(task, target, flops=flops, moved=moved)
    size = rollout_size(task)
    drawn = None if size is None else predicted_rollout(task, target, size)
    if measured:
        band = at_least(narrowed(band, [each.step_ratio for each in measured]), step_dispatch(task, target))
        because = f"{because}; {said_of(measured)}"
    elif not is_known(task, target):
        return PredictedStep(update=None, flops=flops, moved_bytes=moved, because="the device's speed is not known")
    else:
        because += f"; {LIKELY_EFFICIENCY:.0%} of them is likely, and no measured step has narrowed the band"
    return PredictedStep(
        update=band, flops=flops, moved_bytes=moved, because=because, rollout=drawn, draws=size is not None
    )


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
    linked, dispatch = linked_bytes(task, divided=task.config.mesh.shard_params), step_dispatch(task, target)
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
    recomputes = task.config.memory.remat != "none"
    divided = task.mesh.size > 1 and task.config.mesh.shard_params
    return dispatch_seconds(
        target.platform,
        layers=task.model.source.spec.layers,
        passes=4 if recomputes else 3,
        microbatches=task.config.batch.accumulation_steps,
        gathers=(GATHERS if recomputes else GATHERS - 1) if divided else 0,
    )


def with_state(work: Work, train: ProgramMemory) -> Work:
    """Return the work of a step with the state, parameters and opt_state, that it reads and writes once."""
    state = sum(part.bytes for part in train.parts if part.name in ("params", "opt_state"))
    return Work(flops=work.flops, moved=work.moved + 2 * state)
