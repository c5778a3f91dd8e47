"""What a run spends besides memory: time of a step, of the session and the week, and room on the disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from evidence.targets import Target
from schemas.formats import size
from schemas.problems import Problem, problem_of
from trainer.loop.chain import describe_saved_artifacts
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.checkpoints import state_bytes as state_bytes_of
from trainer.loop.state import state_shapes
from trainer.planning.calibration import Measured
from trainer.planning.duration.roofline import band_document
from trainer.planning.duration.session import (
    HOUR_SECONDS,
    SessionPart,
    sessions_needed,
    total_seconds,
    weeks_needed,
)
from trainer.planning.estimate.plain_model import host_need
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.session_time import CompileTime, compile_part, session_parts, step_compile_seconds
from trainer.planning.spending_rules import Band, RunFigures, findings
from trainer.planning.step_time import PredictedStep, predicted_step
from trainer.planning.step_work import Work
from trainer.planning.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a run spends, as plan.json has it."""

    time: dict[str, Any] | None
    disk: dict[str, Any]
    host: dict[str, Any] | None
    """None: the device is the machine itself."""
    findings: tuple[Problem, ...]


def spending_of(
    subject: Subject,
    target: Target,
    programs: list[ProgramMemory],
    *,
    file: str,
    measured: Sequence[Measured] = (),
    work: Work | None = None,
    compiling: CompileTime | None = None,
    hours_stated: float | None = None,
) -> Spending:
    """Return what a run spends of time and disk on a target, and what of it is spent badly.

    Args:
        subject: the run.
        target: where.
        programs: what its programs need.
        file: named in findings.
        measured: runs on the same kind of device.
        work: of one device in a step, read from the compiled one. None: it is counted.
        compiling: what compiling all programs took. None: it is predicted.
        hours_stated: what somebody says that training takes. None: nobody says.
    """
    predicted = predicted_step(subject.task, target, programs, measured=measured, work=work)
    step = predicted.band
    checkpoint = state_bytes_of(state_shapes(subject.task))
    kept = max_checkpoints(subject.task.config)
    disk = {
        "need_bytes": checkpoint * kept,
        "available_bytes": target.disk_bytes,
        "because": f"a checkpoint of {size(checkpoint)}"
        if kept == 1
        else f"{kept} checkpoints of {size(checkpoint)}, the one being written among them",
        "kept": describe_saved_artifacts(subject.task),
    }
    around = None if target.platform == "cpu" else host_need(subject.task, checkpoint)
    compiled = compile_part(subject.task, programs, measured=measured, took=compiling)
    parts = [] if step is None else session_parts(subject, target, step, checkpoint, compiling=compiled)
    time = None
    if step is not None:
        time = {
            **time_document(subject, target, step, parts),
            "because": predicted.because,
            "flops": predicted.flops,
            "moved_bytes": predicted.moved_bytes,
            "rollout": predicted.rollout_document(),
        }
    figures = run_figures(subject, target, predicted, parts, checkpoint, file=file)
    figures = replace(with_program(figures, subject, programs), hours_stated=hours_stated)
    host = None
    if around is not None:
        figures = replace(figures, host_bytes=around[0], host_because=around[1])
        host = {"need_bytes": around[0], "available_bytes": target.host_memory_bytes, "because": around[1]}
    found = (*findings(figures, target), *few_bits_for_nothing(subject, target))
    return Spending(time=time, disk=disk, host=host, findings=found)


def few_bits_for_nothing(subject: Subject, target: Target) -> list[Problem]:
    """Return the warning about a quantised base on a CPU whose layers do not lie stacked."""
    base = subject.task.config.method.base
    if target.platform != "cpu" or not subject.task.model.quantised or subject.task.is_scanned:
        return []
    return [
        problem_of(
            "TP712",
            file=subject.task.config.name,
            pointer="/method/base",
            what=f"method.base is {base}, and {target.kind} is a CPU.",
        )
    ]


def time_document(subject: Subject, target: Target, step: Band, parts: list[SessionPart]) -> dict[str, Any]:
    """Return the time of a run as plan.json has it."""
    total = total_seconds(parts)
    tokens = subject.task.tokens_per_step
    fraction = subject.tokens.real_fraction
    session, week = target.session_seconds, target.week_seconds
    return {
        "step_seconds": band_document(step),
        "hours": band_document(total.times(1 / HOUR_SECONDS)),
        "tokens": tokens,
        "real_tokens": None if fraction is None else round(tokens * fraction, 1),
        "tokens_source": subject.tokens.source,
        "session": [
            {"name": part.name, "seconds": band_document(part.seconds), "because": part.because} for part in parts
        ],
        "session_seconds": session,
        "session_fraction": None if session is None else band_document(total.times(1 / session)),
        "week_seconds": week,
        "week_fraction": None if week is None else band_document(total.times(1 / week)),
        "sessions": None if session is None else list(sessions_needed(parts, session)),
        "weeks": None
        if session is None or week is None
        else weeks_needed(parts, session_seconds=session, week_seconds=week),
    }


def run_figures(
    subject: Subject, target: Target, step: PredictedStep, parts: list[SessionPart], checkpoint: int, *, file: str
) -> RunFigures:
    """Return what is known of the run, for the checks of its spending."""
    task = subject.task
    config = task.config
    sessions = None
    if parts and target.session_seconds is not None:
        sessions = sessions_needed(parts, target.session_seconds)[1]
    real, objective = subject.tokens.real_fraction, config.objective
    return RunFigures(
        file=file,
        steps=config.limits.steps,
        save_every_steps=config.checkpoint.save_every_steps,
        max_minutes=config.limits.max_minutes,
        step_seconds=step.band,
        run_seconds=total_seconds(parts) if parts else None,
        sessions=sessions,
        compute_type=config.precision.compute,
        devices=task.mesh.size,
        tokens_per_step=task.tokens_per_step // config.batch.accumulation_steps,
        flops_per_step=step.flops,
        bytes_per_step=step.moved_bytes,
        padding_fraction=None if real is None else 1 - real,
        packing=config.data.packing,
        group_size=subject.task.objective.sequences_each if step.draws else None,
        group_scaled=objective.scale_rewards != "none",
        divided=config.mesh.shard_params,
        checkpoint_bytes=checkpoint,
        checkpoints_on_disk=max_checkpoints(config),
    )


def with_program(figures: RunFigures, subject: Subject, programs: list[ProgramMemory]) -> RunFigures:
    """Return the figures with what the step's arrays and the compiled step say: donation, optimizer, equal shares."""
    task = subject.task
    shapes = state_shapes(task)
    leaves = jax.tree.leaves(shapes)
    whole = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves]
    on_each = [math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves]
    train = next(program for program in programs if program.name == "train")
    held = {part.name: part.bytes for part in train.parts}
    declared, aliased, ratio = held.get("opt_state"), train.aliased_fraction, train.opt_state_ratio
    return replace(
        figures,
        distinct_shapes=len(task.lengths),
        compile_seconds=step_compile_seconds(task).likely,
        donate_declared=task.config.memory.donate,
        state_bytes=sum(on_each),
        alias_bytes=None if aliased is None else round(aliased * sum(on_each)),
        optimizer=task.config.optimizer.name,
        opt_state_bytes=None if ratio is None or declared is None else round(ratio * declared),
        opt_state_arrays=len(jax.tree.leaves(shapes.opt_state)),
        opt_state_bytes_declared=declared,
        whole_state_bytes=sum(whole),
        bytes_per_device=(sum(on_each),) * task.mesh.size,
    )
