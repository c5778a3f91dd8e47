"""What a run writes down of its state: an entry of the chain, a checkpoint, a file for judges.

On a CPU this is done in place: its cores are the devices. Accelerators go on meanwhile: the loop waits until the state
is copied to the host's memory, and a thread hashes and writes the copy, one at a time. The bytes are the same. An error
of the thread ends the run where the loop next looks; what was written before is whole, as in place.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import jax
import numpy as np

from evidence.hashes import RowsSoFar
from trainer.loop.checkpoint_format import state_sha256, to_stored
from trainer.loop.kept_states import KeptStates
from trainer.loop.saving import Checkpoints
from trainer.loop.step import TrainState
from trainer.recorder.memory import MemoryWatch


class EntryRecorder(Protocol):
    """What takes down entries and events."""

    def rows_so_far(self) -> RowsSoFar | None:
        """Return what the next entry states of the rows before it."""

    def link(
        self,
        *,
        step: int,
        data_position: int,
        state_sha256: str,
        params_sha256: str | None = None,
        rows: RowsSoFar | None = None,
    ) -> None:
        """Take an entry of the chain; of the rows that there were, or of all that there are."""

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Take an event."""

    def sync(self) -> None:
        """Keep all of it, come what may."""


@dataclass(kw_only=True)
class Entries:
    """Writes states down; as a context manager it has written them all at its end."""

    recorder: EntryRecorder
    checkpoints: Checkpoints | None
    """None: nothing is saved."""
    kept: KeptStates | None
    """Keeps some states as evidence. None: none are kept."""
    memory: MemoryWatch | None
    """Observes the memory that saving takes. None: no one does."""
    position: Callable[[int], int]
    """The sequences that the steps up to one take from the stream of passes over the data."""
    beside: bool
    """Whether the devices go on meanwhile."""
    _thread: ThreadPoolExecutor | None = None
    _under_way: Future[int | None] | None = field(default=None)

    def __enter__(self) -> Self:
        if self.beside:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="entries")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.settle()
            elif self._under_way is not None:
                wait([self._under_way])  # what it would say comes second
        finally:
            if self._thread is not None:
                self._thread.shutdown()
            self._thread, self._under_way = None, None

    def prefers(self, step: int) -> None:
        """Let the checkpoint of a step stay besides the newest from now on."""
        self.settle()
        if self.checkpoints is not None:
            self.checkpoints.best_step = step

    def take(self, state: TrainState, *, saved: bool) -> None:
        """Write an entry of the chain, with a checkpoint where one is due; returns as soon as the state may change.

        Args:
            state: after some step.
            saved: whether a checkpoint is due.
        """
        if self._thread is None:
            self.write(state, saved=saved)
            return
        self.settle()
        self._sync(saved=saved)
        with self._observed(saved=saved):
            held = host_copy(state)
        rows = self.recorder.rows_so_far()
        self._under_way = self._thread.submit(self._write, held, rows, saved=saved)

    def write(self, state: TrainState, *, saved: bool, params: str | None = None) -> None:
        """Write them in place.

        Args:
            state: after some step.
            saved: whether a checkpoint is due.
            params: hash of all parameters, where it is known.

        Raises:
            OSError: it could not be written, for example because the disk is full.
        """
        self.settle()
        self._sync(saved=saved)
        self._said(self._write(state, None, saved=saved, params=params))

    def look(self) -> None:
        """Raise what has gone wrong in the thread so far."""
        if self._under_way is not None and self._under_way.done():
            self.settle()

    def settle(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: it could not be.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._said(under_way.result())

    def _write(
        self,
        state: TrainState,
        rows: RowsSoFar | None,
        *,
        saved: bool,
        params: str | None = None,
    ) -> int | None:
        """Write entry, checkpoint and file; return the step where a checkpoint was saved.

        The entry comes first, so that every checkpoint has one: who goes on from the checkpoint goes on with the chain.
        """
        step, hashed, saved_step = int(state.step), state_sha256(to_stored(state)), None
        position = self.position(step)
        self.recorder.link(step=step, data_position=position, state_sha256=hashed, params_sha256=params, rows=rows)
        if saved and self.checkpoints is not None:
            with self._observed(saved=rows is None):
                saved_step = self.checkpoints.save(state, sha256=hashed)
        if self.kept is not None:
            self.kept.take(state)
        return saved_step

    def _sync(self, *, saved: bool) -> None:
        """Put everything recorded so far on the disk before a checkpoint."""
        if saved and self.checkpoints is not None:
            self.recorder.sync()

    def _observed(self, *, saved: bool) -> Any:
        """Return what counts a block as saving; the thread's work is no part of the run by itself."""
        return self.memory.during("save") if saved and self.memory is not None else nullcontext()

    def _said(self, step: int | None) -> None:
        if step is not None and self.checkpoints is not None:
            seconds = self.checkpoints.seconds
            self.recorder.log("info", "checkpoint_saved", f"checkpoint at step {step}", step=step, seconds=seconds)


def host_copy(state: TrainState) -> TrainState:
    """Return a state in the host's memory, which stays when the devices' arrays are used up."""
    held: TrainState = jax.device_get(state)
    on_cpu = any(device.platform == "cpu" for device in state.step.devices())
    # A CPU's arrays lie in that memory already, and are only looked at.
    return jax.tree.map(np.array, held) if on_cpu else held
