"""Save and restore the train state with Orbax, completely or not at all.

Orbax writes into a temporary folder and renames it once everything is on disk, so a kill leaves the last complete
checkpoint. Older ones are deleted once the new one's metadata has been read back. The state's hash is compared when it
is restored; a damaged checkpoint is reported and the newest complete one used.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from evidence.layout import CHECKPOINTS, CONFIG
from schemas.problems import Problem, ProblemError, problem_of
from schemas.render import render_sentence
from trainer.config.tree import Config
from trainer.distributed import fetch, place, process_count
from trainer.loop.compilation import tree_bytes
from trainer.loop.state import initial_params, state_shapes
from trainer.loop.step import TrainState, initial_loss_scale, initial_skipped_steps
from trainer.loop.task import REFERENCE, Task
from trainer.model.decoder import params_sha256
from trainer.model.stacks import Params, device_copy, stack_tree, unstack_tree
from trainer.recorder.recorder import explain_full_device

STATE_HASH, FROZEN_HASH = "state_sha256", "frozen_sha256"
"""Metadata of a checkpoint: hashes of the state, and of the frozen parameters if there are any."""
OPTIONAL: dict[str, Callable[[], Any]] = {"loss_scale": initial_loss_scale, "skipped": initial_skipped_steps}
"""Initial values of the optional parts of a state; the metadata of a checkpoint says whether it `has_` each."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""Exceptions of Orbax for files that are empty, truncated, changed or missing."""
_LAST_WRITERS_SECONDS = 0.3
"""How long other writers of a checkpoint continue after the first one failed."""
_UNSUPPORTED_PATH = re.compile(r"[][*?\\\udc80-\udcff]")
"""Characters of a path that Orbax treats as a pattern, or that are not UTF-8."""


class StoredState(NamedTuple):
    """A train state as it is stored: layers unstacked, with the names that checkpoints have always used."""

    step: Any
    params: Any
    """Trained parameters."""
    opt_state: Any
    loss_scale: Any = None
    skipped: Any = None

    def parts(self) -> dict[str, Any]:
        """Return the parts that exist, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def to_stored(state: TrainState) -> StoredState:
    """Return a state as it is stored."""
    params, opt_state = unstack_tree((state.trained, state.opt_state))
    return StoredState(state.step, params, opt_state, state.loss_scale, state.skipped)


def from_stored(stored: StoredState, like: TrainState) -> TrainState:
    """Return the state that is stored so, with layers stacked as in `like`; the inverse of `to_stored`."""
    trained, opt_state = stack_tree((stored.params, stored.opt_state), (like.trained, like.opt_state))
    return TrainState(stored.step, trained, opt_state, stored.loss_scale, stored.skipped)


def stored_shapes(like: TrainState, *, has: Iterable[str] | None = None) -> StoredState:
    """Return shapes and shardings of a stored state of such a run, with the same optional parts or those it `has`."""
    shapes = to_stored(like)
    if has is not None:
        initial = {name: getattr(like, name) or jax.eval_shape(OPTIONAL[name]) for name in has}
        shapes = shapes._replace(**(dict.fromkeys(OPTIONAL) | initial))
    placed: StoredState = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or like.step.sharding), shapes
    )
    return placed


def state_sha256(state: StoredState) -> str:
    """Return a SHA-256 over the path, shape, dtype and content hash of every array of a state.

    Equal states have equal hashes however they are sharded. Arrays are hashed in parallel.
    """

    def describe(leaf: tuple[Any, jax.Array]) -> list[Any]:
        path, array = leaf
        content: Any = np.ascontiguousarray(fetch(array)).view(np.uint8)
        digest = hashlib.sha256(content).hexdigest()
        return [jax.tree_util.keystr(path), list(array.shape), str(array.dtype), digest]

    with ThreadPoolExecutor(os.cpu_count() if process_count() == 1 else 1) as threads:  # processes gather in one order
        named = list(threads.map(describe, jax.tree_util.tree_leaves_with_path(state)))
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


class Checkpoints:
    """The checkpoints of a run folder, with the hash of the frozen parameters; the newest `keep` remain."""

    def __init__(self, run_folder: Path, *, keep: int, frozen_sha256: str | None = None) -> None:
        self.best_step: int | None = None
        """Step of a checkpoint to keep in addition to the newest."""
        self.seconds = 0.0
        """Duration of the last save."""
        self._metadata = {FROZEN_HASH: frozen_sha256} if frozen_sha256 else {}
        self._keep = keep
        self._folder = (run_folder / CHECKPOINTS).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open = ExitStack()
        self._manager = self._open.enter_context(open_checkpoints(self._folder))

    def save(self, state: TrainState, *, sha256: str | None = None) -> int:
        """Write a state, whose hash may be known, wait until it is on disk, and return its step.

        Raises OSError if it could not be written, for example because the disk is full; earlier checkpoints remain.
        """
        began, step = time.perf_counter(), int(state.step)
        require_space(self._folder, state)
        with quiet_writers():
            error = self._write(step, state, sha256)
            if error is not None:
                time.sleep(_LAST_WRITERS_SECONDS)
                gc.collect()  # unawaited tasks complain when they are collected; here nobody hears it
        if error is not None:
            raise error
        self.seconds = time.perf_counter() - began
        return step

    def _write(self, step: int, state: TrainState, sha256: str | None) -> OSError | None:
        """Write a state; return the operating system's error if that fails, and leave nothing behind."""
        stored = to_stored(state)
        optional = {f"has_{name}": True for name in OPTIONAL if getattr(stored, name) is not None}
        metadata = {STATE_HASH: sha256 or state_sha256(stored), **optional, **self._metadata}
        try:
            self._manager.save(step, args=ocp.args.StandardSave(stored.parts()), custom_metadata=metadata)
            self._manager.wait_until_finished()
        except (OSError, ValueError) as error:
            # On a full disk the space of the unfinished checkpoint is needed to record how the run ended.
            for unfinished in self._folder.glob("*.orbax-checkpoint-tmp"):
                _remove(unfinished)
            # A ValueError of Orbax's writers has the number in its text.
            found = re.search(r"\[os_error_code='(\d+)'\]", str(error))
            number = error.errno if isinstance(error, OSError) else int(found[1]) if found else None
            if number is None:
                raise
            return OSError(number, os.strerror(number), str(self._folder))
        try:
            read = self._manager.metadata(step).item_metadata.tree
        except UNREADABLE:
            read = None
        if _leaf_types(read) != _leaf_types(stored):
            what = f"the checkpoint at step {step} cannot be read back as it was written"
            return OSError(errno.EIO, what, str(self._folder))
        for old in sorted(self._manager.all_steps())[: -self._keep]:
            if old != self.best_step:
                self._manager.delete(old)
        return None

    def close(self) -> None:
        """Close the checkpoint manager."""
        self._open.close()


def _leaf_types(tree: Any) -> list[tuple[tuple[int, ...], str]]:
    return sorted((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(tree))


@contextmanager
def open_checkpoints(folder: Path) -> Iterator[ocp.CheckpointManager]:
    """Open a folder of checkpoints, through a symbolic link if Orbax does not support its path."""
    with ExitStack() as stack:
        if _UNSUPPORTED_PATH.search(str(folder)):
            parents = (tempfile.gettempdir(), "/tmp")  # noqa: S108 - a folder with a random name is created there
            parent = next((each for each in parents if not _UNSUPPORTED_PATH.search(each)), None)
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="trainproof-", dir=parent))
            link = Path(temporary) / CHECKPOINTS
            link.symlink_to(folder, target_is_directory=True)
            folder = link
        options = ocp.CheckpointManagerOptions(create=False, enable_async_checkpointing=False)
        yield stack.enter_context(ocp.CheckpointManager(folder, options=options))


@contextmanager
def quiet_writers() -> Iterator[None]:
    """Silence the tracebacks of Orbax's parallel writers; the first error is raised, others follow a moment later."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [logger.level for logger in loggers]
    hooks = sys.unraisablehook, sys.excepthook
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    sys.unraisablehook, sys.excepthook = lambda _error: None, lambda *_error: None
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            try:
                yield
            except Exception as error:
                time.sleep(_LAST_WRITERS_SECONDS)
                if type(error) is Exception:  # how Orbax reports what TensorStore could not read
                    raise ValueError(str(error)) from error
                raise
    finally:
        sys.unraisablehook, sys.excepthook = hooks
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _remove(folder: Path) -> None:
    """Remove a folder until it stays away; Orbax's threads may recreate it for a moment."""
    absent = 0
    for _ in range(50):
        absent = 0 if folder.exists() else absent + 1
        if absent == 5:
            return
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


def require_space(folder: Path, state: TrainState) -> None:
    """Raise OSError if the disk lacks room for a checkpoint, while there is room to record how the run ended."""
    needed, free = tree_bytes(state), shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"a checkpoint needs {needed:,} bytes, and {free:,} are free", str(folder))


def check_disk_space(run_folder: Path, task: Task) -> None:
    """Raise `ProblemError` with exit code 2 if the disk lacks room for the checkpoints of a run."""
    free = shutil.disk_usage(next(each for each in (run_folder, *run_folder.resolve().parents) if each.is_dir())).free
    each, count = tree_bytes(state_shapes(task)), max_checkpoints(task.config)
    if free < each * count:
        size = f"{count} checkpoints of {each:,} bytes" if count > 1 else f"a checkpoint of {each:,} bytes"
        fewer = ", keep fewer with --set checkpoint.keep=1," if count > 2 else ""
        what = f"The run needs disk space for {size}, and {free:,} bytes are free."
        then = f"Free space there{fewer} or give --output a folder on another disk."
        why = "A run whose last state cannot be saved is lost."
        raise ProblemError([problem_of("TP722", file=str(run_folder), what=what, why=why, next=then)], exit_code=2)


def max_checkpoints(config: Config) -> int:
    """Return the most checkpoints on disk at a time; an old one is deleted after the new one is complete."""
    every = config.checkpoint.save_every_steps
    saved = 1 if every == 0 else 1 + (config.limits.steps - 1) // every
    return min(saved, config.checkpoint.keep + 1) + (config.checkpoint.keep_best is not None)


class StateMismatchError(ValueError):
    """A readable checkpoint whose state is not the one that was saved."""


def checkpoint_steps(run_folder: Path) -> list[int]:
    """Return the steps of the complete checkpoints, newest first."""
    folder = run_folder / CHECKPOINTS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def latest_step(run_folder: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or None."""
    return next(iter(checkpoint_steps(run_folder)), None)


def restore(run_folder: Path, like: TrainState, say: Callable[[str], None] | None = None) -> TrainState:
    """Return the newest undamaged checkpoint, with the shapes, dtypes and shardings of `like`.

    `say` shows newer damaged checkpoints; without it a damaged newest one raises. Raises `ProblemError` with exit code
    2 if every checkpoint is missing or damaged, and 4 if the device runs out of memory.
    """
    damaged: list[tuple[int, str]] = []
    for step in checkpoint_steps(run_folder):
        try:
            with explain_full_device(str(run_folder)):
                state = restore_checkpoint(run_folder, step, like)
        except UNREADABLE as error:
            error.with_traceback(None)  # it refers to the arrays, whose memory is needed for the next checkpoint
            with quiet_writers():
                gc.collect()
            reason = f"it cannot be read as the state of this model and optimizer ({type(error).__name__})"
            damaged.append((step, str(error) if isinstance(error, StateMismatchError) else reason))
            continue
        for problem in (_damaged(run_folder, *each, older=step, is_used=say is not None) for each in damaged):
            if say is None:
                raise ProblemError([problem], exit_code=2)
            say(f"{problem.code}: {render_sentence(problem)}")
        return state
    if not damaged:
        raise ProblemError([missing_checkpoint(run_folder)], exit_code=2)
    raise ProblemError([_damaged(run_folder, *each, older=None) for each in damaged], exit_code=2)


def restore_checkpoint(run_folder: Path, step: int, like: TrainState) -> TrainState:
    """Return the checkpoint of a step; optional parts that `like` lacks are dropped, missing ones initialized.

    Raises StateMismatchError if the state is not the one that was saved, and `UNREADABLE` errors of Orbax.
    """
    with quiet_writers(), open_checkpoints((run_folder / CHECKPOINTS).absolute()) as manager:
        metadata = manager.metadata(step)
        custom = metadata.custom_metadata or {}
        if metadata.init_timestamp_nsecs is None:  # then the hash of the state is unknown too
            reason = "its metadata cannot be read"
            raise StateMismatchError(reason)
        shapes = stored_shapes(like, has=[name for name in OPTIONAL if f"has_{name}" in custom])
        read = manager.restore(step, args=ocp.args.StandardRestore(shapes.parts()))
    stored: StoredState = jax.tree.map(device_copy, StoredState(**read))
    if custom.get(STATE_HASH) not in (None, state_sha256(stored)):
        reason = "its state is not the one that was saved"
        raise StateMismatchError(reason)
    optional = {
        name: getattr(like, name) and (getattr(stored, name) or place(initial(), like.step.sharding))
        for name, initial in OPTIONAL.items()
    }
    return from_stored(stored._replace(**optional), like)


def missing_checkpoint(run_folder: Path) -> Problem:
    """Return the problem of a run without a complete checkpoint."""
    expected = f"a numbered folder under {CHECKPOINTS}/; checkpoints are not committed or packed"
    then = f"Use the machine and folder where it ran, or start a new run with --config {run_folder / CONFIG}."
    what = "The run has no complete checkpoint to resume from."
    return problem_of("TP050", file=str(run_folder), what=what, why=None, expected=expected, next=then)


def _damaged(run_folder: Path, step: int, reason: str, *, older: int | None, is_used: bool = False) -> Problem:
    folder, command = run_folder / CHECKPOINTS, f"trainproof train --resume {run_folder} --output NEW_FOLDER"
    then = f"Resume from the newest undamaged one, at step {older}: {command}."
    if older is None:
        then = f"All checkpoints here are damaged. Each was read back when it was saved, so copy {folder} again."
    elif is_used:
        then = f"The newest undamaged one, at step {older}, is used instead."
    what = f"The checkpoint at step {step} is damaged: {reason}."
    return problem_of("TP053", file=str(folder / str(step)), what=what, next=then)


def restored_state(
    folder: Path, task: Task, *, to_train: bool = False, say: Callable[[str], None] | None = None
) -> tuple[list[TrainState], Params]:
    """Return a list with the newest checkpoint of a run, and the frozen parameters, which are not saved.

    Only `to_train` includes the reference model. Raises `ProblemError` as `restore` does, and with exit code 3 if the
    frozen parameters do not belong to the checkpoint.
    """
    state = restore(folder, state_shapes(task), say)
    if not (task.frozen if to_train else task.model.frozen):
        return [state], {}
    with explain_full_device(str(folder)):
        if task.reference:
            frozen = {f"{REFERENCE}{name}": value for name, value in initial_params(task).items()}
        else:
            frozen = initial_params(task, wanted=lambda name: not task.model.method.is_trained(name))
    with quiet_writers(), open_checkpoints((folder / CHECKPOINTS).absolute()) as manager:
        saved: str | None = (manager.metadata(int(state.step)).custom_metadata or {}).get(FROZEN_HASH)
    found = params_sha256(frozen)
    if saved is not None and saved != found:
        name = task.model.source.name
        what = f"The frozen parameters of {name} have the SHA-256 {found}; the checkpoint was trained with {saved}."
        raise ProblemError([problem_of("TP055", file=str(folder), what=what)], exit_code=3)
    return [state], frozen
