"""A train state as it lies on the disk: the names of its parts there, and the hash over all of its arrays."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from trainer.loop.loss_scale import first_loss_scale
from trainer.loop.skipped_update import no_skipped_steps
from trainer.loop.step import TrainState
from trainer.model.stacks import stack_tree, unstack_tree

HASH = "state_sha256"
"""Where the hash of the state stands in a checkpoint's own metadata; earlier checkpoints lack it."""

FROZEN_HASH = "frozen_sha256"
"""Where the hash of the frozen parameters stands beside it, if there are any."""

SCALED = "has_loss_scale"
"""Stands there, and is true, if a loss scale is a part of the state."""

COUNTED = "has_skipped"
"""Stands there, and is true, if a count of skipped steps is."""

OPTIONAL: dict[str, tuple[str, Callable[[], Any]]] = {
    "loss_scale": (SCALED, first_loss_scale),
    "skipped": (COUNTED, no_skipped_steps),
}
"""Parts of a state that not every run has: how a checkpoint states that it has one, and how it begins."""


class StoredState(NamedTuple):
    """The parts of a state under the names that checkpoints have had since there were such parts."""

    step: Any
    params: Any
    """The trained parameters."""
    opt_state: Any
    loss_scale: Any = None
    """None: the run does not have it, nor does the checkpoint."""
    skipped: Any = None
    """As `loss_scale`."""

    def parts(self) -> dict[str, Any]:
        """Return the parts that there are, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def to_stored(state: TrainState) -> StoredState:
    """Return a state as it is stored: every layer by itself."""
    params, opt_state = unstack_tree((state.trained, state.opt_state))
    return StoredState(step=state.step, params=params, opt_state=opt_state, **optional_parts(state))


def state_of(parts: StoredState, like: TrainState) -> TrainState:
    """Return the state that is stored so, its layers stacked as those of `like`; the inverse of `to_stored`."""
    trained, opt_state = stack_tree((parts.params, parts.opt_state), (like.trained, like.opt_state))
    return TrainState(step=parts.step, trained=trained, opt_state=opt_state, **optional_parts(parts))


def optional_parts(state: TrainState | StoredState) -> dict[str, Any]:
    """Return the parts of a state that not every run has, by name; None where it does not have one."""
    return {name: getattr(state, name) for name in OPTIONAL}


def state_sha256(state: StoredState) -> str:
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
    content: Any = np.ascontiguousarray(jax.device_get(array)).view(
        np.uint8
    )  # a buffer, which its type does not state it
    return hashlib.sha256(content).hexdigest()


def bytes_of(state: TrainState) -> int:
    """Return the bytes of a state, arrays or shapes, over all devices; one that is repeated on them counts once."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
