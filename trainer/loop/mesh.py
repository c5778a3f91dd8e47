"""How devices share the work: one axis that splits the batch and, on request, parameters and optimizer state too.

Splitting the state over the same devices that split the batch is fully sharded data parallelism (ZeRO stage 3,
arXiv 1910.02054); the compiler inserts the gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

AXIS = "devices"


def build_mesh(devices: Sequence[Any]) -> Mesh:
    """Return a mesh of one axis over the devices."""
    return Mesh(np.array(devices), (AXIS,))


def shapes_mesh(devices: int) -> Mesh:
    """Return a mesh of so many devices that are not here: programs are traced on it and never run."""
    # Automatic, as `Mesh` has it: from jax 0.12 on an abstract one would want every sharding written out.
    return cast(Mesh, AbstractMesh((devices,), (AXIS,), axis_types=(AxisType.Auto,)))


def state_shardings(state: Any, mesh: Mesh, *, shard_params: bool) -> Any:
    """Return a sharding for each array of a train state: split along its longest divisible axis, or repeated."""

    def sharding(leaf: Any) -> NamedSharding:
        spec = longest_axis(leaf.shape, mesh.size) if shard_params and mesh.size > 1 else PartitionSpec()
        return NamedSharding(mesh, spec)

    return jax.tree.map(sharding, state)


def longest_axis(shape: Sequence[int], devices: int) -> PartitionSpec:
    """Return the split of an array along its longest axis that the devices divide.

    `longest_axis((100, 64), 8)` splits the second axis; an array with no such axis is repeated on every device.
    """
    divisible = [axis for axis, length in enumerate(shape) if length >= devices and length % devices == 0]
    if not divisible:
        return PartitionSpec()
    longest = max(divisible, key=lambda axis: shape[axis])
    return PartitionSpec(*[AXIS if axis == longest else None for axis in range(len(shape))])


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of `[accum batch …]`: sequences are split over the devices."""
    return NamedSharding(mesh, PartitionSpec(None, AXIS))


def rows_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of `[rows …]`: they are split over the devices."""
    return NamedSharding(mesh, PartitionSpec(AXIS))
