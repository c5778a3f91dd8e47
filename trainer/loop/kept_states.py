"""Train states that a run keeps in its evidence, so that a judge can repeat parts of it without its beginning.

A state holds the optimizer's too and is about three times what is trained, so few are kept, and only small ones: the
one before the last part of the training, then others spread over the run. Each has the hash that the chain states.
`kept_said` has in words what a run keeps, for its plan and its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from evidence import layout
from evidence.writing import write_bytes
from schemas.formats import quantity, size
from trainer.config.tree import Config
from trainer.loop.checkpoint_format import StoredState, bytes_of, state_of, to_stored
from trainer.loop.segments import parts_of, segments_of
from trainer.loop.state import state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import Task
from trainer.loop.trained_params import MOST_HEADER_BYTES, are_kept, arrays_in, params_bytes
from trainer.model.stacks import device_copy

MOST_STATES = 4
"""States that a run keeps at most."""

MOST_DIGITS = 12
"""Digits of a step in the name of a file; a stranger's may have any number."""


CHAINED = 10
"""Entries that a chain has between start and end where the configuration does not state how often."""


class StateFileError(ValueError):
    """A file that does not hold a state of the run."""

    def __str__(self) -> str:
        return "its arrays are not those of a state of this run"


def chained_every(config: Config) -> int:
    """Return the steps between two entries of the chain."""
    return config.recording.chain_every_steps or max(1, config.limits.steps // CHAINED)


def steps_to_keep(config: Config, state_bytes: int, *, first: int) -> frozenset[int]:
    """Return the steps whose states a run keeps: as many as fit into `recording.states_mib`, four at most.

    The one before the last part of the training comes first; the others lie evenly between the start and it.

    Example:
        2,800 steps in ten parts of 280 have nine states between: with room for four, those of the steps 560, 1,120,
        1,680 and 2,520 are kept.

    Args:
        config: of the run.
        state_bytes: size of its state.
        first: the step from which it begins.
    """
    last, every = config.limits.steps, chained_every(config)
    starts = [part.first_step for part in parts_of(segments_of(first, last, range(0, last, every)))][1:]
    count = min(MOST_STATES, (config.recording.states_mib << 20) // max(1, state_bytes), len(starts))
    return frozenset(starts[(number + 1) * len(starts) // count - 1] for number in range(count))


@dataclass(frozen=True, kw_only=True)
class KeptStates:
    """What keeps the states of some steps in a run's folder."""

    folder: Path
    steps: frozenset[int]

    def take(self, state: TrainState) -> None:
        """Write a state if it is one of those that are kept."""
        if int(state.step) in self.steps:
            write_state(self.folder, state)


def kept_states(task: Task, folder: Path, *, first: int) -> KeptStates:
    """Return what keeps the states of a run in its folder.

    Args:
        task: what is trained.
        folder: of the run.
        first: the step from which it begins.
    """
    steps = steps_to_keep(task.config, bytes_of(state_shapes(task)), first=first)
    return KeptStates(folder=folder, steps=steps)


def state_path(folder: Path, step: int) -> Path:
    """Return the file of a step's state below a folder."""
    return folder / layout.STATES / f"{step}.safetensors"


def kept_steps(folder: Path) -> list[int]:
    """Return the steps whose states lie below a folder, by their names."""
    place = folder / layout.STATES
    names = [path.stem for path in place.glob("*.safetensors") if path.is_file()] if place.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal() and len(name) < MOST_DIGITS)


def write_state(folder: Path, state: TrainState) -> None:
    """Write a state below a folder."""
    path = state_path(folder, int(state.step))
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, state_content(state))


def state_content(state: TrainState) -> bytes:
    """Return a state as it is kept: safetensors, its arrays named by their places."""
    named = {name: np.asarray(jax.device_get(leaf), order="C") for name, leaf in named_leaves(to_stored(state)).items()}
    content: bytes = save(named)
    return content


def named_leaves(state: StoredState) -> dict[str, Any]:
    """Return the arrays of a state by their places, in their order."""
    return {jax.tree_util.keystr(place): leaf for place, leaf in jax.tree_util.tree_leaves_with_path(state)}


def read_state(path: Path, like: TrainState) -> TrainState:
    """Return the state in a file with the shardings of `like`, shapes of the run's own state.

    Raises:
        StateFileError: the file has more bytes than such a state, or other arrays.
        OSError: it cannot be read.
        SafetensorError: it is damaged.
    """
    shapes = named_leaves(to_stored(like))
    if path.stat().st_size > bytes_of(like) + MOST_HEADER_BYTES:
        raise StateFileError
    arrays = arrays_in(path.read_bytes())
    found = {name: (tuple(value.shape), str(value.dtype)) for name, value in arrays.items()}
    if found != {name: (tuple(shape.shape), str(shape.dtype)) for name, shape in shapes.items()}:
        raise StateFileError
    leaves = [
        device_copy(jax.device_put(arrays[name], shape.sharding or like.step.sharding))
        for name, shape in shapes.items()
    ]
    state: StoredState = jax.tree.unflatten(jax.tree.structure(to_stored(like)), leaves)
    return state_of(state, like)


def kept_said(task: Task, *, first: int = 0) -> str:
    """Return what a run keeps of its parameters and of its train states, and what a judge can do with it.

    Args:
        task: what is trained.
        first: the step from which it begins.
    """
    return f"{_of_parameters(task)}; {_of_states(task, first)}"


def _of_parameters(task: Task) -> str:
    held = size(params_bytes(task.model.trained))
    if are_kept(task):
        return f"the trained parameters are kept ({held}), so that others can put questions to the model"
    return (
        f"the trained parameters are not kept ({held}; recording.params_mib keeps {task.config.recording.params_mib} "
        "MiB), so that nobody can put questions to the model unless it is packed --with-weights"
    )


def _of_states(task: Task, first: int) -> str:
    each = bytes_of(state_shapes(task))
    count = len(steps_to_keep(task.config, each, first=first))
    if count:
        return f"{quantity(count, 'train state')} of {size(each)} too, so that others can repeat its end"
    most = task.config.recording.states_mib
    return (
        f"no train state is (each has {size(each)}; recording.states_mib keeps {most} MiB), so that a judge asks for "
        "those that he names"
    )
