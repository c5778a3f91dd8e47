"""Restoring a checkpoint as it was saved, or not at all; a damaged one is named, and the newest whole one is used."""

from __future__ import annotations

import gc
from collections.abc import Callable, Container
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from evidence.layout import CHECKPOINTS, CONFIG
from schemas.problems import Problem, ProblemError, problem_of
from schemas.render import as_sentence
from trainer.loop.checkpoint_format import FROZEN_HASH, HASH, OPTIONAL, StoredState, state_of, state_sha256, to_stored
from trainer.loop.saving import UNREADABLE, open_checkpoints, quiet_writers
from trainer.loop.state import initial_params, some_params, state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import REFERENCE, Task
from trainer.model.decoder import params_sha256
from trainer.model.stacks import Params, device_copy
from trainer.recorder.failure import explain_full_device


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


def restore(run_folder: Path, like: TrainState, say: Callable[[str], None] | None = None) -> TrainState:
    """Return the newest whole checkpoint with the shapes, types and shardings of `like`, arrays or only their shapes.

    Args:
        run_folder: of the run.
        like: the state that is wanted.
        say: shows which damaged checkpoints are newer. None: only the newest will do, and it is refused if damaged.

    Raises:
        ProblemError: exit code 2; none is there, or none is what was saved. Exit code 4: the device has no room.
    """
    damaged: list[tuple[int, str]] = []
    for step in steps_of(run_folder):
        try:
            with explain_full_device(str(run_folder)):
                state = restore_checkpoint(run_folder, step, like)
        except UNREADABLE as error:
            error.with_traceback(None)  # it holds what was read, and the memory is needed for the next
            with quiet_writers():
                gc.collect()
            damaged.append((step, reason_of(error)))
            continue
        problems = [damage_problem(run_folder, *each, older=step, is_used=say is not None) for each in damaged]
        for problem in problems:
            if say is None:
                raise ProblemError([problem], exit_code=2)
            say(f"{problem.code}: {as_sentence(problem)}")
        return state
    if not damaged:
        raise ProblemError([no_checkpoint(run_folder)], exit_code=2)
    raise ProblemError([damage_problem(run_folder, *each, older=None) for each in damaged], exit_code=2)


def restore_checkpoint(run_folder: Path, step: int, like: TrainState) -> TrainState:
    """Return the checkpoint of a step.

    A run may go on in another element type, and may begin to skip steps: what is not needed is left out, what is not
    there begins.

    Raises:
        StateMismatchError: it is not what was saved. Orbax raises others where it cannot be read.
    """
    with quiet_writers(), open_checkpoints((run_folder / CHECKPOINTS).absolute()) as manager:
        metadata = manager.metadata(step)
        beside = metadata.custom_metadata or {}
        if metadata.init_timestamp_nsecs is None:  # and the hash of the state is not known
            reason = "its metadata cannot be read"
            raise StateMismatchError(reason)
        shapes = saved_shapes(like, has={name for name, (word, _) in OPTIONAL.items() if word in beside})
        read = manager.restore(step, args=ocp.args.StandardRestore(shapes.parts()))
    parts: StoredState = jax.tree.map(device_copy, StoredState(**read))
    if beside.get(HASH) not in (None, state_sha256(parts)):
        reason = "its state is not the one that was saved"
        raise StateMismatchError(reason)
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


def frozen_sha256_of(run_folder: Path, step: int) -> str | None:
    """Return the hash of the parameters that were frozen beside a checkpoint, None where it states none."""
    with quiet_writers(), open_checkpoints((run_folder / CHECKPOINTS).absolute()) as manager:
        stated: str | None = (manager.metadata(step).custom_metadata or {}).get(FROZEN_HASH)
    return stated


def no_checkpoint(run_folder: Path) -> Problem:
    """Return the problem of a run without a complete checkpoint."""
    return problem_of(
        "TP050",
        file=str(run_folder),
        what="The run has no complete checkpoint to continue from.",
        why=None,
        expected=f"a numbered folder under {CHECKPOINTS}/; checkpoints are not committed or packed",
        next=f"Use the machine and folder where it ran, or start anew with --config {run_folder / CONFIG}.",
    )


def reason_of(error: BaseException) -> str:
    """Return in words why a checkpoint cannot be used."""
    if isinstance(error, StateMismatchError):
        return str(error)
    return f"it cannot be read as the state of this model and optimizer ({type(error).__name__})"


def damage_problem(run_folder: Path, step: int, reason: str, *, older: int | None, is_used: bool = False) -> Problem:
    """Return the problem of a checkpoint that cannot be used, with the newest step that can, and whether it is."""
    there, continued = run_folder / CHECKPOINTS, f"trainproof train --resume {run_folder} --output NEW_FOLDER"
    if older is None:
        then = f"No checkpoint here is whole. Each was read back when it was saved, so copy {there} again from there."
    elif is_used:
        then = f"Step {older} is the newest whole one and is used instead."
    else:
        then = f"Continue from step {older}, which is the newest whole one: {continued}."
    what = f"The checkpoint at step {step} is damaged: {reason}."
    return problem_of("TP053", file=str(there / str(step)), what=what, next=then)


def restored_state(
    folder: Path, task: Task, *, to_train: bool = False, say: Callable[[str], None] | None = None
) -> tuple[list[TrainState], Params]:
    """Return the newest checkpoint of a run, alone in a list, and the frozen parameters, which it does not hold.

    Args:
        folder: of the run.
        task: what it trains.
        to_train: with the reference's parameters, which only a train step reads.
        say: as for `restore`; the newest whole checkpoint is taken then.

    Raises:
        ProblemError: exit code 2, they cannot be used; 3, they are not those of the checkpoint; 4, the device has no
            room.
    """
    state = restore(folder, state_shapes(task), say)
    if not (task.frozen if to_train else task.model.frozen):
        return [state], {}
    with explain_full_device(str(folder)):
        if task.reference:
            frozen = {f"{REFERENCE}{name}": value for name, value in initial_params(task).items()}
        else:
            frozen = some_params(task, lambda name: not task.model.method.is_trained(name))
    saved, found = frozen_sha256_of(folder, int(state.step)), params_sha256(frozen)
    if saved is not None and saved != found:
        name = task.model.source.name
        what = (
            f"The frozen parameters of {name} are not those beside which the checkpoint was trained: they have the "
            f"SHA-256 {found}, and those had {saved}."
        )
        raise ProblemError([problem_of("TP055", file=str(folder), what=what)], exit_code=3)
    return [state], frozen
