"""Parameters of equal layers stacked under one name, so that a program holds such a layer once, and apart again.

`runs.py` states which layers are equal. On the disk there are only layers by themselves.

The name states whose it is, as Python writes a slice: `layers.1:3.mlp.up.kernel` holds that kernel of the layers 1 and
2. Layers that follow each other are equal when they have parameters of the same names and shapes; how far one sees, and
how it turns queries and keys, may differ and is a number to the loop that goes over them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def own_copy(value: Array) -> Array:
    """Return an array in the device's own memory.

    A CPU's may share the host's, which could not be donated and would exist twice when the state is made. An array
    that is on its device already is not copied; on others than a CPU nothing is compiled for that.
    """
    return _take_over(value) if _is_on_cpu(value) else value


@partial(jax.jit, donate_argnums=0)
def _take_over(value: Array) -> Array:
    return value


def _is_on_cpu(value: Array) -> bool:
    return any(device.platform == "cpu" for device in value.devices())


NAME = re.compile(r"(?P<before>(?:.*\.)?layers\.)(?P<layers>\d+:\d+)(?P<after>\..+)")


def runs_of(kinds: Sequence[Hashable]) -> tuple[range, ...]:
    """Return the layers in runs of equal ones, by what kind each is: `aaab` is the layers 0 to 2, and 3."""
    runs: list[range] = []
    for _, group in groupby(kinds):
        first = runs[-1].stop if runs else 0
        runs.append(range(first, first + len(list(group))))
    return tuple(runs)


def stack_name(layers: range) -> str:
    """Return how the layers of a stack are written: `range(1, 3)` is `1:3`."""
    return f"{layers.start}:{layers.stop}"


def stack_of(written: str) -> range:
    """Return the layers of a stack as they are written."""
    start, stop = map(int, written.split(":"))
    return range(start, stop)


def members(name: str) -> tuple[str, ...]:
    """Return the names of the parameters in a stack, in its order; of a name that is not a stack's, the name itself."""
    if (found := NAME.fullmatch(name)) is None:
        return (name,)
    return tuple(f"{found['before']}{number}{found['after']}" for number in stack_of(found["layers"]))


def is_stack(name: str) -> bool:
    """Return whether a parameter is a stack of those of several layers."""
    return NAME.fullmatch(name) is not None


Params = dict[str, Any]
"""By name, as in `params.py`."""


def apart(params: Mapping[str, Any]) -> Params:
    """Return parameters, arrays or shapes, with every layer by itself, in the order of their names.

    On a CPU, layers of a stack are views in the host's memory and take none besides.
    """
    if not any(map(is_stack, params)):
        return dict(params)
    found: Params = {}
    for name, value in params.items():
        found |= dict(zip(members(name), _layers(value), strict=True)) if is_stack(name) else {name: value}
    return dict(sorted(found.items()))


def apart_on_devices(params: Mapping[str, Any]) -> Params:
    """Return arrays with every layer by itself, each on its device, for programs that know no stacks."""
    return {
        name: jax.device_put(value) if isinstance(value, np.ndarray) else value for name, value in apart(params).items()
    }


def _layers(stack: Any) -> list[Any]:
    """Return the layers of a stack."""
    if isinstance(stack, jax.ShapeDtypeStruct):
        return [jax.ShapeDtypeStruct(stack.shape[1:], stack.dtype, sharding=stack.sharding)] * stack.shape[0]
    if isinstance(stack, jax.Array) and all(device.platform == "cpu" for device in stack.devices()):
        return list(np.asarray(jax.device_get(stack)))
    return list(stack)


def stack_params(params: Params, like: Mapping[str, Any]) -> Params:
    """Return parameters by themselves in the stacks that `like` has; the dictionary is used up, so none exists twice.

    Args:
        params: arrays, which may be in the host's memory, or shapes.
        like: the names of what is returned, each with a sharding.
    """
    return {name: _stack([params.pop(member) for member in members(name)], name, like) for name in like}


def _stack(layers: list[Any], name: str, like: Mapping[str, Any]) -> Any:
    """Return arrays or shapes one on the other, as the name states."""
    first, sharding = layers[0], like[name].sharding
    if not is_stack(name):
        return own_copy(jax.device_put(first, sharding)) if isinstance(first, np.ndarray) else first
    if isinstance(first, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((len(layers), *first.shape), first.dtype, sharding=sharding)
    if all(device.platform == "cpu" for device in sharding.device_set):
        return own_copy(jax.device_put(np.stack([np.asarray(layer) for layer in layers]), sharding))
    return jax.device_put(jnp.stack(layers), sharding)


def tree_apart(tree: Any) -> Any:
    """Return a tree of arrays or shapes with the stacks in its dictionaries apart."""
    return jax.tree.map(lambda node: apart(node) if isinstance(node, dict) else node, tree, is_leaf=_is_dict)


def tree_stacked(tree: Any, like: Any) -> Any:
    """Return a tree with its dictionaries in the stacks of another tree of this structure; they are used up."""
    return jax.tree.map(
        lambda node, wanted: stack_params(node, wanted) if isinstance(node, dict) else node,
        tree,
        like,
        is_leaf=_is_dict,
    )


def _is_dict(node: Any) -> bool:
    return isinstance(node, dict)
