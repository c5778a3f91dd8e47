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

from trainer.loop.moments import CodedMoment

AXIS = "devices"


def build_mesh(devices: Sequence[Any]) -> Mesh:
    """Return a mesh of one axis over the devices."""
    return Mesh(np.array(devices), (AXIS,))


def shapes_mesh(devices: int) -> Mesh:
    """Return a mesh of so many devices that are not here: programs are traced on it and never run."""
    # Automatic, as `Mesh` has it: from jax 0.12 on an abstract one would want every sharding written out.
    return cast(Mesh, AbstractMesh((devices,), (AXIS,), axis_types=(AxisType.Auto,)))


def state_shardings(state: Any, mesh: Mesh, *, shard_params: bool) -> Any:
    """Return a sharding for each array of a train state: split along its longest divisible axis, or repeated.

    Magnitudes of blocks are split as what they are of, where the devices divide them so, else repeated.
    """

    def sharding(leaf: Any, whole: Any = None) -> NamedSharding:
        if not shard_params or mesh.size == 1:
            return NamedSharding(mesh, PartitionSpec())
        spec = longest_axis((leaf if whole is None else whole).shape, mesh.size)[: leaf.ndim]
        is_divided = all(
            axis is None or length % mesh.size == 0 for axis, length in zip(spec, leaf.shape, strict=False)
        )
        return NamedSharding(mesh, PartitionSpec(*spec) if is_divided else PartitionSpec())

    def shardings(node: Any) -> Any:
        if not isinstance(node, CodedMoment):
            return sharding(node)
        scales = {name: sharding(scale, node.codes[name]) for name, scale in node.scales.items()}
        return CodedMoment({name: sharding(codes) for name, codes in node.codes.items()}, scales)

    return jax.tree.map(shardings, state, is_leaf=lambda node: isinstance(node, CodedMoment))


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
