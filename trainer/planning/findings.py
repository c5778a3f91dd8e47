"""Find what a planned run would waste besides memory: hours, tokens, parts of the device (TP712, TP73x and TP74x).

A rule is skipped if a figure that it needs is None or empty, which means that it is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
class RunFigures:
    """Figures of a planned run on one device, unless stated otherwise.

    Attributes:
        file: Configuration or run folder that problems refer to.
        save_every_steps: Interval of checkpoints, or 0 for one at the end.
        run_seconds: Whole run with installation, compilation, evaluation and export.
        hours_stated: Training time that the user states.
        tokens_per_step: Tokens of a forward pass over all devices, with padding.
        group_scaled: Whether advantages are divided by the standard deviation of the rewards.
        alias_bytes: Bytes of its arguments that the compiled step reuses.
        opt_state_bytes: Optimizer state of the compiled step.
        opt_state_arrays: Number of its arrays, each of which a compiler pads.
        bytes_per_device: State of each device.
        whole_state_bytes: State of all devices with each array counted once.
        host_because: What needs `host_bytes` in the memory of the host.
    """

    file: str
    steps: int
    save_every_steps: int = 0
    max_minutes: float | None = None
    step_seconds: Band | None = None
    run_seconds: Band | None = None
    sessions: int | None = None
    hours_stated: float | None = None
    compute_type: str | None = None
    devices: int = 1
    tokens_per_step: int | None = None
    flops_per_step: float | None = None
    bytes_per_step: float | None = None
    padding_fraction: float | None = None
    packing: bool = False
    group_size: int | None = None
    group_scaled: bool = True
    distinct_shapes: int | None = None
    compile_seconds: float | None = None
    donate_declared: bool = True
    state_bytes: int | None = None
    alias_bytes: int | None = None
    optimizer: str | None = None
    opt_state_bytes: int | None = None
    opt_state_arrays: int = 0
    opt_state_bytes_declared: int | None = None
    bytes_per_device: tuple[int, ...] = ()
    whole_state_bytes: int | None = None
    divided: bool = True
    checkpoint_bytes: int | None = None
    checkpoints_on_disk: int | None = None
    host_bytes: int | None = None
    host_because: str = ""
    quantised_on_cpu: str | None = None


def collect_figures(
    subject: Subject,
    target: Target,
    step: PredictedStep,
    parts: Sequence[SessionPart],
    train: ProgramMemory,
    **more: Any,
) -> RunFigures:
    """Collect the figures of a planned run.

    Args:
        subject: The run.
        target: The machine.
        step: Time of a step.
        parts: Parts of the session, or empty if the time of a step is unknown.
        train: Memory of the train step.
        more: Further fields.
    """
    task, config = subject.task, subject.task.config
    shapes = state_shapes(task)
    leaves = jax.tree.leaves(shapes)
    on_each = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    declared = sum(part.bytes for part in train.parts if part.name == "opt_state")
    real, draws = subject.tokens.real_fraction, step.drawing is not None
    unstacked = target.platform == "cpu" and task.model.quantised and not task.is_scanned
    return RunFigures(
        file=config.name,
        steps=config.limits.steps,
        save_every_steps=config.checkpoint.save_every_steps,
        max_minutes=config.limits.max_minutes,
        step_seconds=step.band,
        run_seconds=total_seconds(parts) if parts else None,
        sessions=sessions_needed(parts, target.session_seconds)[1] if parts and target.session_seconds else None,
        compute_type=config.precision.compute,
        devices=task.mesh.size,
        tokens_per_step=task.tokens_per_step // config.batch.accumulation_steps,
        flops_per_step=step.flops,
        bytes_per_step=step.moved_bytes,
        padding_fraction=None if real is None else 1 - real,
        packing=config.data.packing,
        group_size=task.objective.sequences_each if draws else None,
        group_scaled=config.objective.scale_rewards != "none",
        distinct_shapes=len(task.lengths),
        compile_seconds=COMPILE_LAYER.likely * compiled_layers(task),
        donate_declared=config.memory.donate,
        state_bytes=on_each,
        alias_bytes=None if train.aliased_fraction is None else round(train.aliased_fraction * on_each),
        optimizer=config.optimizer.name,
        opt_state_bytes=None if train.opt_state_ratio is None else round(train.opt_state_ratio * declared),
        opt_state_arrays=len(jax.tree.leaves(shapes.opt_state)),
        opt_state_bytes_declared=declared or None,
        bytes_per_device=(on_each,) * task.mesh.size,
        whole_state_bytes=sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves),
        divided=config.mesh.shard_params,
        checkpoints_on_disk=max_checkpoints(config),
        quantised_on_cpu=config.method.base if unstacked else None,
        **more,
    )


def findings(figures: RunFigures, target: Target) -> tuple[Problem, ...]:
    """Return what a run would waste on a target, worst first."""
    found = [rule(figures, target) for rule in _RULES]
    return worst_first(problem for problem in found if problem is not None)


def _arithmetic_intensity(run: RunFigures, target: Target) -> Problem | None:
    """Compare operations per byte with the roofline: a TPU v5e does 197e12 operations while it moves 819e9 bytes."""
    peak = target.peak_flops.get(run.compute_type or "")
    if not (peak and target.memory_bandwidth and run.flops_per_step and run.bytes_per_step):
        return None
    ridge, intensity = peak / target.memory_bandwidth, run.flops_per_step / run.bytes_per_step
    if intensity >= ridge:
        return None
    share, tokens = intensity / ridge, run.tokens_per_step
    step, enough = "A step", ""
    if tokens:
        over = f" over {run.devices} devices" if run.devices > 1 else ""
        step = f"A step of {tokens:,} tokens{over}"
        enough = f" About {1 << max(0, int(tokens / share - 1)).bit_length():,} tokens would be enough."
    what = (
        f"{step} gives {target.name} {intensity:.3g} operations per byte; it can do {ridge:.3g}, so at most "
        f"{share:.0%} of its speed is used.{enough}"
    )
    return _problem("TP735", run, what, "/batch/microbatch_size", severity="warning" if share < 0.5 else "note")


def _padding(run: RunFigures, target: Target) -> Problem | None:
    share = run.padding_fraction
    if share is None or share < 0.25:
        return None
    slower = f", so {target.name} works {1 / (1 - share):.3g} times as long as necessary" if share < 1 else ""
    what = f"{share:.0%} of the tokens of a batch are padding{slower}."
    fix = "Use longer rows or a smaller data.max_length." if run.packing else "Use --set data.packing=true."
    pointer = "/data/max_length" if run.packing else "/data/packing"
    return _problem("TP736", run, what, pointer, severity="warning" if share >= 0.5 else "note", next=fix)


def _sharding(run: RunFigures, target: Target) -> Problem | None:
    held = run.bytes_per_device
    if not run.divided or len(held) < 2:
        return None
    fair = (sum(held) if run.whole_state_bytes is None else run.whole_state_bytes) / len(held)
    # Parameters that cannot be divided evenly stay on every device; they are small.
    if max(held) <= fair * 1.1 and len(held) == run.devices:
        return None
    what = (
        f"One of {len(held)} devices of {target.name} holds {size(max(held))} of the state, another "
        f"{size(min(held))}; an equal share is {size(round(fair))}."
    )
    return _problem("TP740", run, what, "/mesh/shard_params")


def _donation(run: RunFigures, target: Target) -> Problem | None:
    state, reused = run.state_bytes, run.alias_bytes
    if reused is None and not run.donate_declared:
        reused = 0
    # Scalars and counters may be copied.
    if state is None or reused is None or reused >= state * 0.98:
        return None
    what = (
        f"The step reuses {size(reused)} of the {size(state)} of state that it replaces on each device of "
        f"{target.name}; memory.donate is {'true' if run.donate_declared else 'false'}."
    )
    fix = f"Use --set memory.donate=true, which frees {size(state - reused)}."
    if run.donate_declared:
        fix = "Report this as a bug: donation is declared, but the compiled step does not use it."
    return _problem(
        "TP738", run, what, "/memory/donate", severity="error" if run.donate_declared else "warning", next=fix
    )


def _optimizer_state(run: RunFigures, target: Target) -> Problem | None:
    found, declared = run.opt_state_bytes, run.opt_state_bytes_declared
    if found is None or declared is None:
        return None
    # A TPU stores the smallest array as a tile of 8 × 128 four-byte numbers; Adafactor has many small arrays.
    padding = 4096 * max(run.opt_state_arrays, 1)
    if abs(found - declared) <= max(declared * 0.02, (run.state_bytes or 0) * 0.01, padding):
        return None
    what = (
        f"The compiled step for {target.name} takes {size(found)} of optimizer state; "
        f"{run.optimizer or 'the declared optimizer'} needs {size(declared)} for these parameters."
    )
    return _problem("TP739", run, what, "/optimizer/name", expected=size(declared))


def _compiled_shapes(run: RunFigures, target: Target) -> Problem | None:
    shapes = run.distinct_shapes
    if shapes is None or shapes <= 1:
        return None
    seconds = None if run.compile_seconds is None else shapes * run.compile_seconds
    is_much = seconds is not None and run.run_seconds is not None and seconds > run.run_seconds.likely * 0.1
    took = f", which takes {seconds / 60:.3g} minutes" if seconds is not None else ""
    what = f"Batches have {shapes} shapes, so the step is compiled {shapes} times for {target.name}{took}."
    return _problem("TP737", run, what, "/data/max_length", severity="warning" if is_much else "note")


def _group_size(run: RunFigures, _target: Target) -> Problem | None:
    if run.group_size is None or run.group_size >= SMALLEST_GROUP:
        return None
    why = ": the two advantages differ only in their sign, so only the order of the rewards matters"
    what = f"objective.group_size is {run.group_size}{why if run.group_size == 2 and run.group_scaled else ''}."
    return _problem("TP748", run, what, "/objective/group_size")


def _checkpoint_interval(run: RunFigures, target: Target) -> Problem | None:
    """Check the time between checkpoints: 500 steps of 100 to 150 s are 14 to 21 hours, more than any session."""
    session = target.session_seconds
    if run.step_seconds is None or session is None:
        return None
    if run.max_minutes is not None and run.max_minutes * 60 < session:
        return None  # the run saves and stops before the session ends
    every = min(run.save_every_steps or run.steps, run.steps)
    interval = run.step_seconds.times(every)
    if interval.likely < session / 2:
        return None
    how = f"every {every:,} steps" if run.save_every_steps else f"only at the end, after {every:,} steps"
    is_lost = interval.likely >= session
    fewer = max(1, int(session / 4 / run.step_seconds.high))
    hours, session_hours = _range(interval, HOUR), f"{session / HOUR:g}"
    return _problem(
        "TP731",
        run,
        f"A checkpoint is written {how}, which takes {hours} hours; a session of {target.name} has {session_hours}.",
        "/checkpoint/save_every_steps",
        severity="error" if is_lost else "warning",
        why=None if is_lost else f"An interrupted session loses up to {hours} of its {session_hours} hours.",
        next=f"Use --set checkpoint.save_every_steps={fewer}, which is at most "
        f"{fewer * run.step_seconds.high / HOUR:.2g} hours; or set limits.max_minutes so that the run saves before the "
        "session ends.",
    )


def _session(run: RunFigures, target: Target) -> Problem | None:
    session = target.session_seconds
    if run.run_seconds is None or session is None or run.run_seconds.high <= session:
        return None
    is_likely = run.run_seconds.likely > session
    count = f" in about {run.sessions} sessions" if run.sessions and is_likely else ""
    hours = _range(run.run_seconds, HOUR)
    what = f"The run takes {hours} hours{count}; a session of {target.name} has {session / HOUR:g}."
    fix = (
        f"Use --set limits.max_minutes={int(session / 60) - 30} and `trainproof train --resume` in the next session, "
        "or train fewer steps."
    )
    return _problem("TP732", run, what, severity="warning" if is_likely else "note", next=fix)


def _weekly_quota(run: RunFigures, target: Target) -> Problem | None:
    week = target.week_seconds
    if run.run_seconds is None or week is None or run.run_seconds.high <= week:
        return None
    what = f"The run takes {_range(run.run_seconds, HOUR)} hours; {target.name} has {week / HOUR:g} a week."
    return _problem("TP733", run, what, severity="warning" if run.run_seconds.likely > week else "note")


def _stated_hours(run: RunFigures, target: Target) -> Problem | None:
    """Compare stated hours with steps times step time: 2,500 steps of 100 to 150 s are 69 to 104 hours, not 40."""
    if run.hours_stated is None or run.step_seconds is None:
        return None
    whole = run.step_seconds.times(run.steps)
    if whole.low * 0.9 <= run.hours_stated * HOUR <= whole.high * 1.1:
        return None
    hours = f"{_range(whole, HOUR)} hours"
    what = (
        f"{run.steps:,} steps of {_range(run.step_seconds)} s on {target.name} are {hours}, not {run.hours_stated:g}."
    )
    return _problem("TP734", run, what, expected=hours)


def _time_limit(run: RunFigures, target: Target) -> Problem | None:
    """Check limits.max_minutes: 400 steps of 8 to 19 s, likely 12, are 80 minutes; 60 minutes end at step 300."""
    if run.max_minutes is None or run.step_seconds is None:
        return None
    limit, whole = run.max_minutes * 60, run.step_seconds.times(run.steps)
    if whole.high <= limit:
        return None
    is_likely = whole.likely > limit
    reached = int(limit / (run.step_seconds.likely if is_likely else run.step_seconds.high))
    what = (
        f"{run.steps:,} steps on {target.name} take {_range(whole, 60)} minutes; limits.max_minutes is "
        f"{run.max_minutes:g}, which is enough for {'about' if is_likely else 'as few as'} {reached:,}."
    )
    return _problem("TP742", run, what, "/limits/max_minutes", severity="warning" if is_likely else "note")


def _disk(run: RunFigures, target: Target) -> Problem | None:
    if run.checkpoint_bytes is None or run.checkpoints_on_disk is None or target.disk_bytes is None:
        return None
    need = run.checkpoint_bytes * run.checkpoints_on_disk
    if need <= target.disk_bytes:
        return None
    what = (
        f"{run.checkpoints_on_disk} checkpoints of {run.checkpoint_bytes / 1e9:.3g} GB are {need / 1e9:.3g} GB; "
        f"{target.name} has {target.disk_bytes / 1e9:.3g} GB."
    )
    return _problem("TP741", run, what, "/checkpoint/keep")


def _quantised_on_cpu(run: RunFigures, target: Target) -> Problem | None:
    if run.quantised_on_cpu is None:
        return None
    what = f"method.base is {run.quantised_on_cpu}, and {target.device_kinds[0]} is a CPU."
    return _problem("TP712", run, what, "/method/base")


def _host_memory(run: RunFigures, target: Target) -> Problem | None:
    if run.host_bytes is None or target.host_memory_bytes is None or run.host_bytes <= target.host_memory_bytes:
        return None
    what = (
        f"{run.host_because} is {run.host_bytes / 1e9:.3g} GB; the host of {target.name} has "
        f"{target.host_memory_bytes / 1e9:.3g} GB of memory."
    )
    return _problem("TP743", run, what)


def _problem(code: str, run: RunFigures, what: str, pointer: str | None = None, **more: Any) -> Problem:
    return problem_of(code, file=run.file, what=what, pointer=pointer, **more)


def _range(band: Band, unit: float = 1.0) -> str:
    """Return a band as text: `14 to 21`, or one number if both ends are written alike."""
    low, high = f"{band.low / unit:.3g}", f"{band.high / unit:.3g}"
    return low if low == high else f"{low} to {high}"


_RULES: tuple[Callable[[RunFigures, Target], Problem | None], ...] = (
    _arithmetic_intensity,
    _padding,
    _sharding,
    _donation,
    _optimizer_state,
    _compiled_shapes,
    _group_size,
    _checkpoint_interval,
    _session,
    _weekly_quota,
    _stated_hours,
    _time_limit,
    _disk,
    _host_memory,
    _quantised_on_cpu,
)
