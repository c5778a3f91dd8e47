"""Saving the train state with Orbax, whole or not at all.

Orbax writes into a temporary folder and renames it when everything is on disk, so a kill leaves the last complete
checkpoint. A checkpoint counts as saved, and older ones go, once its metadata has been read back. The state holds all
that the next step depends on; data order follows from the step itself. What a disk changes after that shows: the
state's hash is saved with it, and compared where it is restored.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from evidence.layout import CHECKPOINTS
from trainer.loop.checkpoint_format import FROZEN_HASH, HASH, OPTIONAL, StoredState, bytes_of, state_sha256, to_stored
from trainer.loop.step import TrainState

UNFINISHED = ".orbax-checkpoint-tmp"
"""End of the name of a checkpoint that is being written."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""What Orbax raises of files that were emptied, cut off, changed or removed."""

_LAST_WRITERS_SECONDS = 0.3
"""How long the other writers of a checkpoint go on after the first one failed."""

_NO_PATH_OF_ORBAX = re.compile(r"[][*?\\\udc80-\udcff]")
"""What Orbax takes for a pattern of file names, and bytes that are no UTF-8."""


class Checkpoints:
    """The checkpoints of one run folder; the newest `keep` stay."""

    def __init__(self, run_folder: Path, *, keep: int, frozen_sha256: str | None = None) -> None:
        """Open the folder's checkpoints; nothing is written yet.

        Args:
            run_folder: of the run.
            keep: how many stay.
            frozen_sha256: hash of the parameters that are not saved. None: all are saved.
        """
        self.best_step: int | None = None
        """The step whose checkpoint stays besides the newest. None: the newest alone stay."""
        self._beside = {FROZEN_HASH: frozen_sha256} if frozen_sha256 else {}
        self._keep = keep
        self._folder = (run_folder / CHECKPOINTS).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open = ExitStack()
        self._manager = self._open.enter_context(open_checkpoints(self._folder))
        self.seconds = 0.0
        """How long the last save took."""

    def save(self, state: TrainState, *, sha256: str | None = None) -> int:
        """Write the state and return its step; returns when it is complete on disk.

        Args:
            state: what is saved.
            sha256: its hash, where it is known already.

        Raises:
            OSError: it could not be written, for example because the disk is full; earlier checkpoints are whole.
        """
        began = time.perf_counter()
        step = int(state.step)
        refuse_full_disk(self._folder, state)
        with quiet_writers():
            error = self._write(step, state, sha256)
            if error is not None:
                time.sleep(_LAST_WRITERS_SECONDS)
                gc.collect()  # Tasks that no one awaited complain when they are collected: here, unheard.
        if error is not None:
            raise error
        self.seconds = time.perf_counter() - began
        return step

    def _write(self, step: int, state: TrainState, sha256: str | None) -> OSError | None:
        """Write the state and return None, or the operating system's error and leave nothing behind."""
        try:
            parts = to_stored(state)
            beside = {word: True for name, (word, _) in OPTIONAL.items() if getattr(parts, name) is not None}
            self._manager.save(
                step,
                args=ocp.args.StandardSave(parts.parts()),
                custom_metadata={HASH: sha256 or state_sha256(parts), **beside, **self._beside},
            )
            self._manager.wait_until_finished()
        except (OSError, ValueError) as error:
            # What is half written is of no use, and on a full disk its space is needed to record how the run ended.
            for unfinished in self._folder.glob(f"*{UNFINISHED}"):
                _remove(unfinished)
            number = error_number(error)
            if number is None:
                raise
            return OSError(number, os.strerror(number), str(self._folder))
        if not self._can_be_read(step, parts):
            what = f"the checkpoint at step {step} cannot be read back as it was written"
            return OSError(errno.EIO, what, str(self._folder))
        for old in sorted(self._manager.all_steps())[: -self._keep]:
            if old != self.best_step:
                self._manager.delete(old)
        return None

    def _can_be_read(self, step: int, parts: StoredState) -> bool:
        """Return whether the disk has the metadata of every array of a checkpoint that was just written."""
        try:
            found = self._manager.metadata(step).item_metadata.tree
        except UNREADABLE:
            return False
        saved, read = (
            sorted((each.shape, str(each.dtype)) for each in jax.tree.leaves(tree)) for tree in (parts, found)
        )
        return saved == read

    def close(self) -> None:
        """Release what Orbax holds."""
        self._open.close()


@contextmanager
def open_checkpoints(folder: Path) -> Iterator[ocp.CheckpointManager]:
    """Open a folder of checkpoints, through a link where Orbax cannot handle its path."""
    with ExitStack() as stack:
        if _NO_PATH_OF_ORBAX.search(str(folder)):
            places = (tempfile.gettempdir(), "/tmp")  # noqa: S108 - a folder of a random name is made there
            place = next((each for each in places if not _NO_PATH_OF_ORBAX.search(each)), None)
            link = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainproof-", dir=place))) / CHECKPOINTS
            link.symlink_to(folder, target_is_directory=True)
            folder = link
        options = ocp.CheckpointManagerOptions(create=False, enable_async_checkpointing=False)
        yield stack.enter_context(ocp.CheckpointManager(folder, options=options))


@contextmanager
def quiet_writers() -> Iterator[None]:
    """Keep the many writers of one checkpoint off the terminal: when one fails, each writes a traceback.

    The first one's error is raised by Orbax and reported by the caller; the others may come a moment later.
    """
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
                if type(error) is Exception:  # so Orbax names what TensorStore could not read
                    raise ValueError(str(error)) from error
                raise
    finally:
        sys.unraisablehook, sys.excepthook = hooks
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


def error_number(error: OSError | ValueError) -> int | None:
    """Return the operating system's error number, which a ValueError of Orbax's writers states in its text."""
    if isinstance(error, OSError):
        return error.errno
    number = re.search(r"\[os_error_code='(\d+)'\]", str(error))
    return int(number[1]) if number else None


def refuse_full_disk(folder: Path, state: TrainState) -> None:
    """Refuse to begin a checkpoint that the disk has no room for, while there is room to record how the run ended."""
    needed = bytes_of(state)
    free = shutil.disk_usage(folder).free
    if free < needed:
        what = f"a checkpoint needs {needed:,} bytes, and {free:,} are free"
        raise OSError(errno.ENOSPC, what, str(folder))
