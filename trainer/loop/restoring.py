"""Restoring a checkpoint as it was saved, or not at all; what is damaged is refused with the one that is whole."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from evidence.run.layout import CHECKPOINTS, CONFIG
from evidence.run.unreadable import NO_CHECKPOINT
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.loop.checkpoint_format import FROZEN_HASH, HASH, OPTIONAL, StoredState, state_of, state_sha256, to_stored
from trainer.loop.saving import quiet_writers
from trainer.loop.state import initial_params, some_params, state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import REFERENCE, Task
from trainer.model.params import Params, params_sha256
from trainer.model.stacking import own_copy
from trainer.recorder.failure import explain_full_device

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""What Orbax raises of files that were emptied, cut off, changed or removed."""

DAMAGED = Rule(
    "TP053",
    "Damaged checkpoint",
    "What changed or got lost since it was saved is no state of the run, so nothing is done with it.",
    "Move it away and continue from an earlier one, or start anew.",
)


ANOTHER_BASE = Rule(
    "TP055",
    "Checkpoint of another base",
    "The checkpoint holds what was trained beside the model; beside another one it means something else.",
    "Name the model as it was, or begin anew.",
)


class StateMismatchError(ValueError):
    """A checkpoint that can be read and is not the state that was saved."""


def steps_of(run_folder: Path) -> list[int]:
    """Return the steps of the complete checkpoints, the newest first. Orbax marks complete ones by name."""
    folder = run_folder / CHECKPOINTS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def latest_step(run_folder: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or None if it is missing."""
    return next(iter(steps_of(run_folder)), None)


def restore(run_folder: Path, like: TrainState) -> TrainState:
    """Return the newest checkpoint with the shapes, types and shardings of `like`, arrays or only their shapes.

    A damaged one is refused, not passed over: which step a run continues from is declared before, and no one should
    learn from a manifest that it was an earlier one.

    Raises:
        ProblemError: exit code 2; it is missing, or it is not what was saved. Exit code 4: the device has no room.
    """
    step = latest_step(run_folder)
    if step is None:
        raise ProblemError([no_checkpoint(run_folder)], exit_code=2)
    try:
        with explain_full_device(str(run_folder)):
            return restore_checkpoint(run_folder, step, like)
    except UNREADABLE as error:
        error.with_traceback(None)  # it holds what was read, and the memory is needed for the next
        older = next((each for each in steps_of(run_folder)[1:] if is_whole(run_folder, each, like)), None)
        raise ProblemError([damage_problem(run_folder, step, error, older=older)], exit_code=2) from error


def restore_checkpoint(run_folder: Path, step: int, like: TrainState) -> TrainState:
    """Return the checkpoint of a step.

    A run may go on in another element type, and may begin to skip steps: what is not needed is left out, what is not
    there begins.

    Raises:
        StateMismatchError: it is not what was saved. Orbax raises others where it cannot be read.
    """
    with quiet_writers(), ocp.CheckpointManager((run_folder / CHECKPOINTS).absolute()) as manager:
        beside = manager.metadata(step).custom_metadata or {}
        shapes = saved_shapes(like, has={name for name, (word, _) in OPTIONAL.items() if word in beside})
        read = manager.restore(step, args=ocp.args.StandardRestore(shapes.parts()))
    parts: StoredState = jax.tree.map(own_copy, StoredState(**read))
    if beside.get(HASH) not in (None, state_sha256(parts)):
        raise StateMismatchError
    for name, (_, first) in OPTIONAL.items():
        if getattr(like, name) is None:
            parts = parts._replace(**{name: None})
        elif getattr(parts, name) is None:
            parts = parts._replace(**{name: jax.device_put(first(), like.step.sharding)})
    return state_of(parts, like)


def saved_shapes(like: TrainState, *, has: Container[str]) -> StoredState:
    """Return what a checkpoint of such a state holds as shapes, with those of the optional parts that it has."""
    parts = {
        name: (getattr(like, name) or jax.eval_shape(first)) if name in has else None
        for name, (_, first) in OPTIONAL.items()
    }
    shapes: StoredState = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or like.step.sharding),
        to_stored(like)._replace(**parts),
    )
    return shapes


def frozen_sha256_of(run_folder: Path) -> str | None:
    """Return the hash of the parameters that were frozen beside the newest checkpoint, None where it states none."""
    with quiet_writers(), ocp.CheckpointManager((run_folder / CHECKPOINTS).absolute()) as manager:
        stated: str | None = (manager.metadata(latest_step(run_folder)).custom_metadata or {}).get(FROZEN_HASH)
    return stated


def is_whole(run_folder: Path, step: int, like: TrainState) -> bool:
    """Return whether the checkpoint of a step can be restored and is what was saved."""
    try:
        restore_checkpoint(run_folder, step, like)
    except UNREADABLE:
        return False
    return True


def no_checkpoint(run_folder: Path) -> Problem:
    """Return the problem of a run without a complete checkpoint."""
    return problem_of(
        NO_CHECKPOINT,
        file=str(run_folder),
        what="The run has no complete checkpoint to continue from.",
        why=None,
        expected=f"a numbered folder under {CHECKPOINTS}/; checkpoints are not committed or packed",
        next=f"Use the machine and folder where it ran, or start anew with --config {run_folder / CONFIG}.",
    )


def damage_problem(run_folder: Path, step: int, error: BaseException, *, older: int | None) -> Problem:
    """Return the problem of a newest checkpoint that cannot be used, with the step that is left."""
    folder = run_folder / CHECKPOINTS / str(step)
    reason = (
        "its state is not the one that was saved"
        if isinstance(error, StateMismatchError)
        else f"it cannot be read as the state of this model and optimizer ({type(error).__name__})"
    )
    continued = f"Move this folder away and continue from step {older}, which is whole: trainproof train --resume"
    return problem_of(
        DAMAGED,
        file=str(folder),
        what=f"The checkpoint at step {step} is damaged: {reason}.",
        next=f"No earlier one is whole: start anew with --config {run_folder / CONFIG}."
        if older is None
        else f"{continued} {run_folder} --output NEW_FOLDER.",
    )


def restored_state(folder: Path, task: Task, *, to_train: bool = False) -> tuple[list[TrainState], Params]:
    """Return the newest checkpoint of a run, alone in a list, and the frozen parameters, which it does not hold.

    Args:
        folder: of the run.
        task: what it trains.
        to_train: with the reference's parameters, which only a train step reads.

    Raises:
        ProblemError: exit code 2, they cannot be used; 3, they are not those of the checkpoint; 4, the device has no
            room.
    """
    state = restore(folder, state_shapes(task))
    if not (task.frozen if to_train else task.model.frozen):
        return [state], {}
    with explain_full_device(str(folder)):
        if task.reference:
            frozen = {f"{REFERENCE}{name}": value for name, value in initial_params(task).items()}
        else:
            frozen = some_params(task, lambda name: not task.model.method.is_trained(name))
    saved, found = frozen_sha256_of(folder), params_sha256(frozen)
    if saved is not None and saved != found:
        name = task.model.source.name
        what = (
            f"The frozen parameters of {name} are not those beside which the checkpoint was trained: they have the "
            f"SHA-256 {found}, and those had {saved}."
        )
        raise ProblemError([problem_of(ANOTHER_BASE, file=str(folder), what=what)], exit_code=3)
    return [state], frozen
