"""Parameters of equal layers stacked under one name, so that a program holds such a layer once, and apart again.

`runs.py` states which layers are equal. On the disk there are only layers by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trainer.model.placing import own_copy
from trainer.model.runs import is_stack, members

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
