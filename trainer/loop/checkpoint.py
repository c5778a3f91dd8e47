"""Saving and restoring the train state with Orbax, whole or not at all.

Orbax writes into a temporary folder and renames it when everything is on disk, so a kill leaves the last complete
checkpoint. The state holds all that the next step depends on; data order follows from the step itself. What a disk
changes after that shows: the state's hash is saved with it, and compared where it is restored.
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
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from evidence.run.layout import CHECKPOINTS, CONFIG
from schemas.problems.problem import Problem, ProblemError
from trainer.config.tree import Config
from trainer.loop.step import TrainState
from trainer.model.params import owned
from trainer.recorder.failure import memory_told

UNFINISHED = ".orbax-checkpoint-tmp"
"""End of the name of a checkpoint that is being written."""

HASH = "state_sha256"
"""Where the hash of the state stands in a checkpoint's own metadata; earlier checkpoints have none."""


class AnotherStateError(ValueError):
    """A checkpoint that can be read and is not the state that was saved."""


UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""What Orbax raises of files that were emptied, cut off, changed or removed."""


class Checkpoints:
    """The checkpoints of one run folder; the newest `keep` stay."""

    def __init__(self, run_folder: Path, *, keep: int) -> None:
        """Open the folder's checkpoints; nothing is written yet."""
        self._folder = (run_folder / CHECKPOINTS).absolute()
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, enable_async_checkpointing=False),
        )
        self.seconds = 0.0
        """How long the last save took."""

    def save(self, state: TrainState) -> int:
        """Write the state and return its step; returns when it is complete on disk.

        Raises:
            OSError: it could not be written, for example because the disk is full; earlier checkpoints are whole.
        """
        began = time.perf_counter()
        step = int(state.step)
        refuse_full_disk(self._folder, state)
        with quiet_writers():
            number = self._write(step, state)
            if number is not None:
                gc.collect()  # Tasks that nobody awaited complain when they are collected: here, unheard.
        if number is not None:
            raise OSError(number, os.strerror(number), str(self._folder))
        self.seconds = time.perf_counter() - began
        return step

    def _write(self, step: int, state: TrainState) -> int | None:
        """Write the state and return None, or the operating system's error number and leave nothing behind."""
        try:
            self._manager.save(
                step, args=ocp.args.StandardSave(state._asdict()), custom_metadata={HASH: state_sha256(state)}
            )
            self._manager.wait_until_finished()
        except (OSError, ValueError) as error:
            # What is half written is of no use, and on a full disk its space is needed to record how the run ended.
            for unfinished in self._folder.glob(f"*{UNFINISHED}"):
                _remove(unfinished)
            number = error_number(error)
            if number is None:
                raise
            return number
        return None

    def close(self) -> None:
        """Release what Orbax holds."""
        self._manager.close()


@contextmanager
def quiet_writers() -> Iterator[None]:
    """Keep the many writers of one checkpoint off the terminal: when one fails, each says so, by a traceback.

    The first one's error is raised by Orbax and told by the caller.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [logger.level for logger in loggers]
    hook = sys.unraisablehook
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _error: None
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            yield
    finally:
        sys.unraisablehook = hook
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _remove(folder: Path) -> None:
    """Remove a folder which threads of Orbax may make anew for a moment, until it stays away."""
    looks_without = 0
    for _ in range(50):
        looks_without = 0 if folder.exists() else looks_without + 1
        if looks_without == 5:
            return
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


def most_at_once(config: Config) -> int:
    """Return how many checkpoints lie on the disk at one time: an old one goes when the new one is whole."""
    every = config.checkpoint.save_every_steps
    saved = 1 if every == 0 else 1 + (config.limits.steps - 1) // every
    return min(saved, config.checkpoint.keep + 1)


def refuse_no_room(run_folder: Path, *, state_bytes: int, at_once: int) -> None:
    """Refuse a run whose checkpoints the disk has no room for, before anything is spent.

    Raises:
        ProblemError: exit code 2.
    """
    there = next(folder for folder in (run_folder, *run_folder.resolve().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if free >= state_bytes * at_once:
        return
    several = (
        f"{at_once} checkpoints of {state_bytes:,} bytes" if at_once > 1 else f"a checkpoint of {state_bytes:,} bytes"
    )
    fewer = ", keep fewer with --set checkpoint.keep=1," if at_once > 2 else ""
    problem = Problem(
        code="TP722",
        severity="error",
        file=str(run_folder),
        what=f"The disk has no room for the run: it will hold {several} at a time, and {free:,} are free.",
        why="A run whose last state cannot be saved would be spent for nothing.",
        next=f"Free space there{fewer} or give --output a folder on another disk.",
    )
    raise ProblemError([problem], exit_code=2)


def refuse_full_disk(folder: Path, state: TrainState) -> None:
    """Refuse to begin a checkpoint that the disk has no room for, while there is room to record how the run ended."""
    needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    free = shutil.disk_usage(folder).free
    if free < needed:
        what = f"a checkpoint needs {needed:,} bytes, and {free:,} are free"
        raise OSError(errno.ENOSPC, what, str(folder))


def error_number(error: OSError | ValueError) -> int | None:
    """Return the operating system's error number, which a ValueError of Orbax's writers states in its text."""
    if isinstance(error, OSError):
        return error.errno
    number = re.search(r"\[os_error_code='(\d+)'\]", str(error))
    return int(number[1]) if number else None


def steps_of(run_folder: Path) -> list[int]:
    """Return the steps of the complete checkpoints, the newest first. Orbax marks complete ones by name."""
    folder = run_folder / CHECKPOINTS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def latest_step(run_folder: Path) -> int | None:
    """Return the step of the newest complete checkpoint, None if there is none."""
    return next(iter(steps_of(run_folder)), None)


def restore(run_folder: Path, like: TrainState) -> TrainState:
    """Return the newest checkpoint with the shapes, types and shardings of `like`, arrays or only their shapes.

    A damaged one is refused, not passed over: which step a run continues from is declared before, and nobody should
    learn from a manifest that it was an earlier one.

    Raises:
        ProblemError: exit code 2; there is none, or it is not what was saved. Exit code 4: the device has no room.
    """
    step = latest_step(run_folder)
    if step is None:
        raise ProblemError([no_checkpoint(run_folder)], exit_code=2)
    try:
        with memory_told(str(run_folder)):
            return restored(run_folder, step, like)
    except UNREADABLE as error:
        error.with_traceback(None)  # it holds what was read, and the memory is needed for the next
        older = next((each for each in steps_of(run_folder)[1:] if is_whole(run_folder, each, like)), None)
        raise ProblemError([damaged(run_folder, step, error, older=older)], exit_code=2) from error


def restored(run_folder: Path, step: int, like: TrainState) -> TrainState:
    """Return the checkpoint of a step.

    Raises:
        AnotherStateError: it is not what was saved. Orbax raises others where it cannot be read.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)
    with quiet_writers(), ocp.CheckpointManager((run_folder / CHECKPOINTS).absolute()) as manager:
        read: dict[str, Any] = manager.restore(step, args=ocp.args.StandardRestore(shapes._asdict()))
        saved_sha256 = (manager.metadata(step).custom_metadata or {}).get(HASH)
    state: TrainState = jax.tree.map(owned, TrainState(**read))
    if saved_sha256 is not None and saved_sha256 != state_sha256(state):
        raise AnotherStateError
    return state


def is_whole(run_folder: Path, step: int, like: TrainState) -> bool:
    """Return whether the checkpoint of a step can be restored and is what was saved."""
    try:
        restored(run_folder, step, like)
    except UNREADABLE:
        return False
    return True


def state_sha256(state: TrainState) -> str:
    """Return the SHA-256 over the hashes of every array of a state with its place, shape and dtype.

    Arrays are hashed side by side, so that a processor's cores share the work; equal states have equal hashes however
    they are sharded.
    """
    places, arrays = zip(*jax.tree_util.tree_leaves_with_path(state), strict=True)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        hashes = list(threads.map(array_sha256, arrays))
    named = [
        [jax.tree_util.keystr(place), list(array.shape), str(array.dtype), digest]
        for place, array, digest in zip(places, arrays, hashes, strict=True)
    ]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def array_sha256(array: jax.Array) -> str:
    """Return the SHA-256 of an array's elements in C order."""
    content: Any = np.ascontiguousarray(jax.device_get(array)).view(np.uint8)  # a buffer, which its type does not say
    return hashlib.sha256(content).hexdigest()


def no_checkpoint(run_folder: Path) -> Problem:
    """Return the problem of a run without a complete checkpoint."""
    return Problem(
        code="TP050",
        severity="error",
        file=str(run_folder),
        what="The run has no complete checkpoint to continue from.",
        expected=f"a numbered folder under {CHECKPOINTS}/; checkpoints are not committed or packed",
        next=f"Use the machine and folder where it ran, or start anew with --config {run_folder / CONFIG}.",
    )


def damaged(run_folder: Path, step: int, error: BaseException, *, older: int | None) -> Problem:
    """Return the problem of a newest checkpoint that cannot be used, with the step that is left."""
    folder = run_folder / CHECKPOINTS / str(step)
    reason = (
        "its state is not the one that was saved"
        if isinstance(error, AnotherStateError)
        else f"it cannot be read as the state of this model and optimizer ({type(error).__name__})"
    )
    continued = f"Move this folder away and continue from step {older}, which is whole: trainproof train --resume"
    return Problem(
        code="TP053",
        severity="error",
        file=str(folder),
        what=f"The checkpoint at step {step} is damaged: {reason}.",
        why="What changed or got lost since it was saved is no state of the run, so nothing is done with it.",
        next=f"No earlier one is whole: start anew with --config {run_folder / CONFIG}."
        if older is None
        else f"{continued} {run_folder} --output NEW_FOLDER.",
    )
