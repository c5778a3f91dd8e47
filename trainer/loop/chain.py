"""The chain of a run's states, the segments between its entries, and the states that judges can replay from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from safetensors.numpy import save

from evidence import layout
from evidence.hashes import RowsSoFar
from evidence.writing import write_bytes
from schemas.formats import quantity, size
from trainer.config.tree import Config
from trainer.data.batches import global_batch_size
from trainer.distributed import fetch
from trainer.loop.checkpoints import Checkpoints, StoredState, from_stored, state_sha256, stored_shapes, to_stored
from trainer.loop.compilation import tree_bytes
from trainer.loop.state import read_arrays, state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import Task
from trainer.model.stacks import Params, unstack_layers
from trainer.recorder.recorder import Recorder
from trainer.recorder.sensors import MemoryWatch

ENTRIES = 10
"""Entries of a chain between start and end by default, and segments of a run without a chain."""
MAX_SPANS, MAX_STATES = 20, 4
"""Most spans that a run is divided into for sampling, and most train states that it saves for judges."""
MAX_DIGITS = 12
"""Longest step number in a file name of a stranger's run."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The steps `first_step + 1` to `last_step`: between two entries of a chain, or a span of such segments."""

    number: int
    first_step: int
    last_step: int

    @property
    def name(self) -> str:
        """Name for messages, for example `steps 1 to 280`."""
        return f"steps {self.first_step + 1} to {self.last_step}"

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last_step - self.first_step

    def document(self) -> dict[str, int]:
        """Return the ends for receipts and events."""
        return {"first_step": self.first_step, "last_step": self.last_step}

    def __contains__(self, other: Segment) -> bool:
        return self.first_step <= other.first_step and other.last_step <= self.last_step


def split_segments(first: int, last: int, chained: Collection[int]) -> tuple[Segment, ...]:
    """Split a run into segments at the steps with an entry in the chain, or into equal ones without entries."""
    inner = chained or range(first, last, max(1, -(-(last - first) // ENTRIES)))
    steps = sorted({first, last, *(step for step in inner if first < step < last)})
    return tuple(Segment(number=number, first_step=a, last_step=b) for number, (a, b) in enumerate(pairwise(steps)))


def split_spans(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Group the segments of a run into spans of at least a twentieth of its steps; the rest joins the last span.

    The author of a run chooses the length of segments, so short ones are sampled together. A run of 2,800 steps with an
    entry at each has spans of 140 steps.
    """
    first, last = segments[0].first_step, segments[-1].last_step
    least = -(-(last - first) // MAX_SPANS)
    starts = [first]
    for segment in segments:
        # Another span begins if this one is long enough and the steps that are left are too.
        if segment.first_step - starts[-1] >= least <= last - segment.first_step:
            starts.append(segment.first_step)
    return split_segments(first, last, starts)


def chain_interval(config: Config) -> int:
    """Return the steps between two entries of the chain."""
    return config.recording.chain_every_steps or max(1, config.limits.steps // ENTRIES)


@dataclass(kw_only=True)
class StateWriter:
    """Writes states: an entry of the chain, a checkpoint, and a file for judges of the `kept_steps` in `folder`.

    On a CPU this happens in place. If it is `asynchronous`, as on accelerators, the loop waits until the state is
    copied to host memory, and a thread hashes and writes the copy, one at a time. Its errors are raised by the next
    call. Used as a context manager, it has written everything at the end. Without `checkpoints` it saves none.
    """

    task: Task
    recorder: Recorder
    checkpoints: Checkpoints | None = None
    folder: Path = Path()
    kept_steps: frozenset[int] = frozenset()
    memory: MemoryWatch | None = None
    asynchronous: bool = False
    _thread: ThreadPoolExecutor | None = None
    _running: Future[int | None] | None = None

    def __enter__(self) -> Self:
        if self.asynchronous:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="states")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()  # waits; the first error is the one to report
            self._thread, self._running = None, None

    @property
    def seconds(self) -> float:
        """Duration of the last checkpoint."""
        return 0.0 if self.checkpoints is None else self.checkpoints.seconds

    def is_saved(self, done: int) -> bool:
        """Return whether a checkpoint follows a step; the last one is saved after the loop."""
        every = self.task.config.checkpoint.save_every_steps
        return every > 0 and done % every == 0 and done < self.task.config.limits.steps

    def is_chained(self, done: int) -> bool:
        """Return whether an entry of the chain follows a step; checkpoints and the end have one anyway."""
        return done % chain_interval(self.task.config) == 0 and done < self.task.config.limits.steps

    def submit(self, state: TrainState, *, saved: bool) -> None:
        """Write an entry, and a checkpoint if `saved`; return as soon as the state may be donated."""
        if self._thread is None:
            self.write(state, saved=saved)
            return
        self.wait()
        with self._measured(saved=saved):
            copy = host_copy(state)
        self._running = self._thread.submit(self._write, copy, self.recorder.chain.rows_so_far(), saved=saved)

    def write(self, state: TrainState, *, saved: bool, params: str | None = None) -> None:
        """Write an entry, with the hash of all parameters if it is known, and a checkpoint if `saved`; wait for both.

        Raises OSError if the state could not be written, for example because the disk is full.
        """
        self.wait()
        self._log(self._write(state, None, saved=saved, params=params))

    def raise_errors(self) -> None:
        """Raise errors of the thread so far."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Wait until everything is written; raise OSError if that failed."""
        running, self._running = self._running, None
        if running is not None:
            self._log(running.result())

    def _write(
        self, state: TrainState, rows: RowsSoFar | None, *, saved: bool, params: str | None = None
    ) -> int | None:
        """Write an entry, then checkpoint and file, which need it; return the step if a checkpoint was saved."""
        step, sha256, saved_step = int(state.step), state_sha256(to_stored(state)), None
        position = step * global_batch_size(self.task.config, devices=self.task.mesh.size)
        self.recorder.link(step=step, data_position=position, state_sha256=sha256, params_sha256=params, rows=rows)
        if saved and self.checkpoints is not None:
            self.recorder.sync()
            with self._measured(saved=rows is None):
                saved_step = self.checkpoints.save(state, sha256=sha256)
        if step in self.kept_steps:
            write_state(self.folder, state)
        return saved_step

    def _measured(self, *, saved: bool) -> Any:
        """Measure the memory of a block as saving; the thread's work is not a phase of the run."""
        return self.memory.during("save") if saved and self.memory is not None else nullcontext()

    def _log(self, step: int | None) -> None:
        if step is not None:
            message = f"checkpoint at step {step}"
            self.recorder.log("info", "checkpoint_saved", message, step=step, seconds=self.seconds)


def host_copy(state: TrainState) -> TrainState:
    """Copy a state to host memory; the copy outlives donation."""
    copy: TrainState = jax.device_get(state)
    on_cpu = any(device.platform == "cpu" for device in state.step.devices())
    # `device_get` of a CPU array is a view.
    return jax.tree.map(np.array, copy) if on_cpu else copy


def saves_params(task: Task) -> bool:
    """Return whether a run saves its trained parameters: adapters always, whole models up to `recording.params_mib`."""
    return bool(task.model.adapters) or tree_bytes(task.model.trained) <= task.config.recording.params_mib << 20


def save_trained_params(folder: Path, trained: Params, task: Task) -> None:
    """Write the trained parameters, about a third of an AdamW checkpoint, if `saves_params` allows it."""
    if saves_params(task):
        arrays = {name: np.ascontiguousarray(fetch(value)) for name, value in unstack_layers(trained).items()}
        write_bytes(folder / layout.TRAINED_PARAMS, save(arrays))


def steps_to_keep(config: Config, state_size: int, *, first: int) -> frozenset[int]:
    """Return the steps whose states a run saves: as many as fit into `recording.states_mib`, at most `MAX_STATES`.

    The start of the last span is always among them; the others are spread evenly before it. Example: with 2,800 steps
    in ten spans of 280 and room for four states, these are steps 560, 1,120, 1,680 and 2,520. `state_size` is in bytes;
    `first` is the step at which the run begins.
    """
    last, every = config.limits.steps, chain_interval(config)
    starts = [span.first_step for span in split_spans(split_segments(first, last, range(0, last, every)))][1:]
    count = min(MAX_STATES, (config.recording.states_mib << 20) // max(1, state_size), len(starts))
    return frozenset(starts[(number + 1) * len(starts) // count - 1] for number in range(count))


def state_path(folder: Path, step: int) -> Path:
    """Return the file of a saved state."""
    return folder / layout.STATES / f"{step}.safetensors"


def saved_state_steps(folder: Path) -> list[int]:
    """Return the steps of the states saved in a folder."""
    states = folder / layout.STATES
    names = [path.stem for path in states.glob("*.safetensors") if path.is_file()] if states.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal() and len(name) < MAX_DIGITS)


def write_state(folder: Path, state: TrainState) -> None:
    """Write a state in safetensors format, arrays named by their paths."""
    path, leaves = state_path(folder, int(state.step)), _named_leaves(to_stored(state)).items()
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, save({name: np.asarray(fetch(leaf), order="C") for name, leaf in leaves}))


def read_state(path: Path, like: TrainState) -> TrainState:
    """Read a saved state with the shapes and shardings of `like`.

    Raises OSError if the file cannot be read, SafetensorError if it is damaged, and ValueError if it has other arrays.
    """
    shapes = stored_shapes(like)
    arrays = read_arrays(path, _named_leaves(shapes))
    stored: StoredState = jax.tree.unflatten(jax.tree.structure(shapes), list(arrays.values()))
    return from_stored(stored, like)


def _named_leaves(state: StoredState) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def describe_saved_artifacts(task: Task, *, first: int = 0) -> str:
    """Return what a run saves for judges, in one line; the run begins at step `first`."""
    config, each = task.config.recording, tree_bytes(state_shapes(task))
    count = len(steps_to_keep(task.config, each, first=first))
    params = f"trained parameters of {size(tree_bytes(task.model.trained))}"
    states = f"{quantity(count, 'training state')} of {size(each)}"
    saved = [text for text, is_saved in ((params, saves_params(task)), (states, count)) if is_saved]
    missing = [] if saves_params(task) else [f"{params} (recording.params_mib={config.params_mib})"]
    missing += [] if count else [f"training states of {size(each)} (recording.states_mib={config.states_mib})"]
    text = f"saved for verification: {', '.join(saved) or 'nothing'}"
    return text + (f"; not saved: {', '.join(missing)}" if missing else "")
