"""Find what a planned run would waste: hours, tokens, parts of the device (TP712, TP73x and TP74x)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from evidence.targets import Target
from schemas.formats import size
from schemas.problems import Problem, problem_of, worst_first
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.state import state_shapes
from trainer.planning.duration import (
    COMPILE_LAYER,
    HOUR,
    Band,
    PredictedStep,
    SessionPart,
    compiled_layers,
    sessions_needed,
    total_seconds,
)
from trainer.planning.memory import ProgramMemory
from trainer.planning.subject import Subject

SMALLEST_GROUP = 4


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run on a target, for the rules below. A rule is skipped if a figure that it needs is unknown.

    Attributes:
        train: Memory of the train step.
        parts: Parts of the session, or empty if the time of a step is unknown.
        host: Bytes that the host of the devices needs, and for what.
        hours_stated: Training time that the user states.
    """

    subject: Subject
    target: Target
    train: ProgramMemory
    step: PredictedStep
    parts: Sequence[SessionPart] = ()
    checkpoint_bytes: int = 0
    host: tuple[int, str] | None = None
    hours_stated: float | None = None

    @cached_property
    def seconds(self) -> Band | None:
        """Time of the whole run."""
        return total_seconds(self.parts) if self.parts else None

    def problem(self, code: str, what: str, pointer: str | None = None, **more: Any) -> Problem:
        """Return a problem of this run."""
        return problem_of(code, file=self.subject.task.config.name, what=what, pointer=pointer, **more)


def findings(run: PlannedRun) -> tuple[Problem, ...]:
    """Return what a run would waste, worst first."""
    return worst_first([*_check_time(run), *_check_tokens(run), *_check_state(run), *_check_machine(run)])


def _check_time(run: PlannedRun) -> Iterator[Problem]:
    """Compare the time of the run with the session, the quota, and what is stated."""
    target, config = run.target, run.subject.task.config
    session, week, step, whole = target.session_seconds, target.week_seconds, run.step.band, run.seconds
    steps, max_minutes = config.limits.steps, config.limits.max_minutes
    if step is not None and session is not None and (max_minutes is None or max_minutes * 60 >= session):
        # 500 steps of 100 to 150 s between checkpoints are 14 to 21 hours, more than any session.
        every = min(config.checkpoint.save_every_steps or steps, steps)
        interval, fewer = step.times(every), max(1, int(session / 4 / step.high))
        how = (
            f"every {every:,} steps"
            if config.checkpoint.save_every_steps
            else f"only at the end, after {every:,} steps"
        )
        hours, is_lost = _range(interval, HOUR), interval.likely >= session
        if interval.likely >= session / 2:
            yield run.problem(
                "TP731",
                f"A checkpoint is written {how}, which takes {hours} hours; a session of {target.name} has "
                f"{session / HOUR:g}.",
                "/checkpoint/save_every_steps",
                severity="error" if is_lost else "warning",
                why=None if is_lost else f"An interrupted session loses up to {hours} of its {session / HOUR:g} hours.",
                next=f"Use --set checkpoint.save_every_steps={fewer}, which is at most {fewer * step.high / HOUR:.2g} "
                "hours; or set limits.max_minutes so that the run saves before the session ends.",
            )
    if whole is not None and session is not None and whole.high > session:
        is_likely, sessions = whole.likely > session, sessions_needed(run.parts, session)[1]
        count = f" in about {sessions} sessions" if sessions and is_likely else ""
        yield run.problem(
            "TP732",
            f"The run takes {_range(whole, HOUR)} hours{count}; a session of {target.name} has {session / HOUR:g}.",
            severity="warning" if is_likely else "note",
            next=f"Use --set limits.max_minutes={int(session / 60) - 30} and `trainproof train --resume` in the next "
            "session, or train fewer steps.",
        )
    if whole is not None and week is not None and whole.high > week:
        what = f"The run takes {_range(whole, HOUR)} hours; {target.name} has {week / HOUR:g} a week."
        yield run.problem("TP733", what, severity="warning" if whole.likely > week else "note")
    if step is None:
        return
    training, stated = step.times(steps), run.hours_stated
    # 2,500 steps of 100 to 150 s are 69 to 104 hours, not 40.
    if stated is not None and not training.low * 0.9 <= stated * HOUR <= training.high * 1.1:
        hours = f"{_range(training, HOUR)} hours"
        what = f"{steps:,} steps of {_range(step)} s on {target.name} are {hours}, not {stated:g}."
        yield run.problem("TP734", what, expected=hours)
    # 400 steps of 8 to 19 s, likely 12, are 80 minutes; 60 minutes end at step 300.
    if max_minutes is not None and training.high > max_minutes * 60:
        is_likely = training.likely > max_minutes * 60
        reached = int(max_minutes * 60 / (step.likely if is_likely else step.high))
        what = (
            f"{steps:,} steps on {target.name} take {_range(training, 60)} minutes; limits.max_minutes is "
            f"{max_minutes:g}, which is enough for {'about' if is_likely else 'as few as'} {reached:,}."
        )
        yield run.problem("TP742", what, "/limits/max_minutes", severity="warning" if is_likely else "note")


def _check_tokens(run: PlannedRun) -> Iterator[Problem]:
    """Look for work that leaves the device idle or teaches nothing."""
    task, target, fraction = run.subject.task, run.target, run.subject.tokens[0]
    config, peak = task.config, target.peak_flops.get(task.config.precision.compute)
    if peak and target.memory_bandwidth and run.step.moved_bytes:
        # Williams et al., CACM 52(4), 2009: a TPU v5e does 197e12 operations while it moves 819e9 bytes.
        ridge, intensity = peak / target.memory_bandwidth, run.step.flops / run.step.moved_bytes
        tokens, share = task.tokens_per_step // config.batch.accumulation_steps, intensity / ridge
        if share < 1:
            over = f" over {task.mesh.size} devices" if task.mesh.size > 1 else ""
            what = (
                f"A step of {tokens:,} tokens{over} gives {target.name} {intensity:.3g} operations per byte; it can do "
                f"{ridge:.3g}, so at most {share:.0%} of its speed is used. About "
                f"{1 << max(0, int(tokens / share - 1)).bit_length():,} tokens would be enough."
            )
            yield run.problem("TP735", what, "/batch/microbatch_size", severity="warning" if share < 0.5 else "note")
    if fraction is not None and fraction <= 0.75:
        slower = f", so {target.name} works {1 / fraction:.3g} times as long as necessary" if fraction else ""
        what = f"{1 - fraction:.0%} of the tokens of a batch are padding{slower}."
        fix = "Use longer rows or a smaller data.max_length." if config.data.packing else "Use --set data.packing=true."
        pointer = "/data/max_length" if config.data.packing else "/data/packing"
        yield run.problem("TP736", what, pointer, severity="warning" if fraction <= 0.5 else "note", next=fix)
    if (shapes := len(task.lengths)) > 1:
        seconds = shapes * COMPILE_LAYER.likely * compiled_layers(task)
        is_much = run.seconds is not None and seconds > run.seconds.likely * 0.1
        what = (
            f"Batches have {shapes} shapes, so the step is compiled {shapes} times for {target.name}, which takes "
            f"{seconds / 60:.3g} minutes."
        )
        yield run.problem("TP737", what, "/data/max_length", severity="warning" if is_much else "note")
    group = task.objective.sequences_each
    if run.step.drawing is not None and group < SMALLEST_GROUP:
        scaled = group == 2 and config.objective.scale_rewards != "none"
        why = (
            ": the two advantages differ only in their sign, so only the order of the rewards matters" if scaled else ""
        )
        yield run.problem("TP748", f"objective.group_size is {group}{why}.", "/objective/group_size")


def _check_state(run: PlannedRun) -> Iterator[Problem]:
    """Check donation, optimizer state and division of the state as the compiled step has them."""
    task, target, train = run.subject.task, run.target, run.train
    config, shapes = task.config, state_shapes(task)
    leaves = jax.tree.leaves(shapes)
    state = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    reused = train.aliased_fraction if config.memory.donate else train.aliased_fraction or 0.0
    # Scalars and counters may be copied.
    if reused is not None and reused < 0.98:
        missing = size(round(state * (1 - reused)))
        fix = f"Use --set memory.donate=true, which frees {missing}."
        if config.memory.donate:
            fix = "Report this as a bug: donation is declared, but the compiled step does not use it."
        what = (
            f"The step copies {missing} of the {size(state)} of state that it replaces on each device of "
            f"{target.name}; memory.donate is {'true' if config.memory.donate else 'false'}."
        )
        severity = "error" if config.memory.donate else "warning"
        yield run.problem("TP738", what, "/memory/donate", severity=severity, next=fix)
    declared = sum(part.bytes for part in train.parts if part.name == "opt_state")
    found = declared if train.opt_state_ratio is None else round(train.opt_state_ratio * declared)
    # A TPU stores the smallest array as a tile of 8 × 128 four-byte numbers; Adafactor has many small arrays.
    padding = 4096 * max(len(jax.tree.leaves(shapes.opt_state)), 1)
    if abs(found - declared) > max(declared * 0.02, state * 0.01, padding):
        what = (
            f"The compiled step for {target.name} takes {size(found)} of optimizer state; {config.optimizer.name} "
            f"needs {size(declared)} for these parameters."
        )
        yield run.problem("TP739", what, "/optimizer/name", expected=size(declared))
    fair = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves) / task.mesh.size
    # Parameters that cannot be divided evenly stay on every device; they are small.
    if config.mesh.shard_params and state > fair * 1.1:
        what = (
            f"Each of {task.mesh.size} devices of {target.name} has {size(state)} of the state; an equal share is "
            f"{size(round(fair))}."
        )
        yield run.problem("TP740", what, "/mesh/shard_params")


def _check_machine(run: PlannedRun) -> Iterator[Problem]:
    """Compare disk and host memory, and look for a quantised base that a CPU unpacks."""
    task, target = run.subject.task, run.target
    kept = max_checkpoints(task.config)
    if target.disk_bytes is not None and run.checkpoint_bytes * kept > target.disk_bytes:
        what = (
            f"{kept} checkpoints of {run.checkpoint_bytes / 1e9:.3g} GB are {run.checkpoint_bytes * kept / 1e9:.3g} "
            f"GB; {target.name} has {target.disk_bytes / 1e9:.3g} GB."
        )
        yield run.problem("TP741", what, "/checkpoint/keep")
    if run.host is not None and target.host_memory_bytes is not None and run.host[0] > target.host_memory_bytes:
        what = (
            f"{run.host[1]} is {run.host[0] / 1e9:.3g} GB; the host of {target.name} has "
            f"{target.host_memory_bytes / 1e9:.3g} GB of memory."
        )
        yield run.problem("TP743", what)
    if target.platform == "cpu" and task.model.quantised and not task.is_scanned:
        what = f"method.base is {task.config.method.base}, and {target.device_kinds[0]} is a CPU."
        yield run.problem("TP712", what, "/method/base")


def _range(band: Band, unit: float = 1.0) -> str:
    """Return a band as text: `14 to 21`, or one number if both ends are written alike."""
    low, high = f"{band.low / unit:.3g}", f"{band.high / unit:.3g}"
    return low if low == high else f"{low} to {high}"
