"""Stacks of equal layers: a program contains such a layer once, in a loop, and compiles in a fraction of the time.

A stack's parameters have one name, with the layers written as a slice: `layers.1:3.mlp.up.kernel` is that kernel of
layers 1 and 2. Consecutive layers are equal if their parameters have the same names and shapes; window and rotary
positions may differ. Files and checkpoints always contain single layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Key

from trainer.distributed import place
from trainer.model.attention import Context, Layer
from trainer.model.layers import PRODUCT, Dropout, Dtypes, Linear
from trainer.model.rope import Rotary
from trainer.model.spec import BlockSpec, ModelSpec, Rope

Params = dict[str, Any]  # parameters by name: arrays, or `jax.ShapeDtypeStruct` for an abstract decoder
Remat = Literal["none", "layer", "dots"]
REMAT_POLICIES: dict[Remat, Any] = {"layer": None, "dots": jax.checkpoint_policies.save_only_these_names(PRODUCT)}
"""Outputs that a rematerialised layer saves in addition to its input."""

STACK = re.compile(r"(?P<before>(?:.*\.)?layers\.)(?P<layers>\d+:\d+)(?P<after>\..+)")


def layer_range(text: str) -> range:
    """Parse the layers of a stack: `1:3` is `range(1, 3)`."""
    start, stop = map(int, text.split(":"))
    return range(start, stop)


def is_stack(name: str) -> bool:
    """Return whether a parameter is a stack."""
    return STACK.fullmatch(name) is not None


def stacked_names(name: str) -> tuple[str, ...]:
    """Return the names of the parameters in a stack, in order; a name of a single layer is returned alone."""
    if (match := STACK.fullmatch(name)) is None:
        return (name,)
    return tuple(f"{match['before']}{number}{match['after']}" for number in layer_range(match["layers"]))


def unstack_layers(params: Mapping[str, Any]) -> Params:
    """Return parameters, arrays or shapes, with every layer on its own, sorted by name.

    On a CPU the layers of a stack are views in host memory.
    """
    if not any(map(is_stack, params)):
        return dict(params)
    single: Params = {}
    for name, value in params.items():
        single |= dict(zip(stacked_names(name), _slices(value), strict=True)) if is_stack(name) else {name: value}
    return dict(sorted(single.items()))


def unstack_on_devices(params: Mapping[str, Any]) -> Params:
    """Return arrays with every layer on its own, on their devices, for programs without stacks."""
    return {
        name: jax.device_put(value) if isinstance(value, np.ndarray) else value
        for name, value in unstack_layers(params).items()
    }


def _slices(stack: Any) -> list[Any]:
    if isinstance(stack, jax.ShapeDtypeStruct):
        return [jax.ShapeDtypeStruct(stack.shape[1:], stack.dtype, sharding=stack.sharding)] * stack.shape[0]
    if isinstance(stack, jax.Array) and all(device.platform == "cpu" for device in stack.devices()):
        return list(np.asarray(jax.device_get(stack)))
    return list(stack)


def stack_params(params: Params, like: Mapping[str, Any]) -> Params:
    """Stack single layers as in `like`, whose values have shardings; empties `params`, so that nothing exists twice."""
    return {name: _stack([params.pop(each) for each in stacked_names(name)], name, like[name]) for name in like}


def _stack(layers: list[Any], name: str, like: Any) -> Any:
    first, sharding = layers[0], like.sharding
    if not is_stack(name):
        return device_copy(place(first, sharding)) if isinstance(first, np.ndarray) else first
    if isinstance(first, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((len(layers), *first.shape), first.dtype, sharding=sharding)
    if all(device.platform == "cpu" for device in sharding.device_set):
        return device_copy(jax.device_put(np.stack([np.asarray(layer) for layer in layers]), sharding))
    return jax.device_put(jnp.stack(layers), sharding)


def _is_dict(node: Any) -> bool:
    return isinstance(node, dict)


def unstack_tree(tree: Any) -> Any:
    """Apply `unstack_layers` to the dictionaries of a tree."""
    return jax.tree.map(lambda node: unstack_layers(node) if _is_dict(node) else node, tree, is_leaf=_is_dict)


def stack_tree(tree: Any, like: Any) -> Any:
    """Apply `stack_params` to the dictionaries of a tree; `like` has the same structure."""
    return jax.tree.map(
        lambda node, like: stack_params(node, like) if _is_dict(node) else node, tree, like, is_leaf=_is_dict
    )


@partial(jax.jit, donate_argnums=0)
def _take_ownership(value: Array) -> Array:
    return value


def device_copy(value: Array) -> Array:
    """Return an array in memory that its device owns.

    A CPU array may share host memory; it could not be donated and would exist twice when the train state is made.
    """
    return _take_ownership(value) if any(device.platform == "cpu" for device in value.devices()) else value


def layer_call(remat: Remat, *, prevent_cse: bool = True) -> Any:
    """Return the function that applies a layer, rematerialised as requested."""
    if remat == "none":
        return Layer.__call__
    return nnx.remat(Layer.__call__, prevent_cse=prevent_cse, policy=REMAT_POLICIES[remat])


def init_stacks(spec: ModelSpec, groups: tuple[range, ...], *, dtypes: Dtypes, rngs: nnx.Rngs) -> dict[str, Layer]:
    """Return a layer with stacked parameters for each group of equal layers, by the group's range: `1:3`."""
    key, count = rngs.params.key[...], rngs.params.count[...]
    layer = nnx.eval_shape(lambda: Layer(spec, spec.blocks[0], dtypes=dtypes, rngs=nnx.Rngs(params=0)))
    draws = sum(isinstance(node, Linear) for _, node in nnx.iter_graph(layer))  # keys that each layer consumes
    structures: list[nnx.GraphDef[Layer]] = []

    def init(count: Array, block: BlockSpec) -> Any:
        """Return a layer as if `count` keys had been consumed before it."""
        own = nnx.Rngs(params=key)
        own.params.count[...] = count
        graphdef, state = nnx.split(Layer(spec, block, dtypes=dtypes, rngs=own))
        structures.append(graphdef)
        return state

    stacks = {}
    for layers in groups:
        counts = count + jnp.asarray(layers, jnp.uint32) * jnp.uint32(draws)
        states = jax.vmap(partial(init, block=spec.blocks[layers.start]))(counts)
        stacks[f"{layers.start}:{layers.stop}"] = nnx.merge(structures[-1], states)
    rngs.params.count[...] = count + jnp.uint32(draws * spec.layers)
    return stacks


def scan_stacks(
    stacks: Mapping[str, Layer],
    spec: ModelSpec,
    x: Float[Array, "batch seq embed"],
    context: Context,
    rotary: Mapping[Rope | None, Rotary | None],
    dropout_key: Key[Array, ""] | None,
    *,
    remat: Remat,
) -> Float[Array, "batch seq embed"]:
    """Return the residual stream after all layers, with one loop per stack."""
    # A loop and its backward pass have no common subexpressions.
    call = layer_call(remat, prevent_cse=False)
    for name, stack in sorted(stacks.items(), key=lambda item: layer_range(item[0]).start):
        layers = layer_range(name)
        structure, state = nnx.split(stack)
        tables, per_layer = per_layer_rope_and_window([spec.blocks[layer] for layer in layers], spec, context, rotary)

        def step(x: Any, scanned: Any, structure: Any = structure, tables: Any = tables) -> tuple[Any, None]:
            state, number, offset, own = scanned
            if own is None:
                local = context._replace(rotary=tables)
            else:
                window, kind = own
                local = context._replace(window=window, rotary=(tables[0][kind], tables[1][kind]))
            if dropout_key is not None:
                local = local._replace(dropout=Dropout(jax.random.fold_in(dropout_key, number), offset))
            x, _ = call(nnx.merge(structure, state), x, local)
            return x, None

        offsets = jnp.asarray(stack.adapter_offsets, jnp.int32)
        x, _ = jax.lax.scan(step, x, (state, jnp.asarray(layers, jnp.int32), offsets, per_layer))
    return x


def per_layer_rope_and_window(
    blocks: Sequence[BlockSpec], spec: ModelSpec, context: Context, rotary: Mapping[Rope | None, Rotary | None]
) -> tuple[tuple[Array, Array] | None, tuple[Array, Array] | None]:
    """Return the rotary tables of a stack and, for each layer, its window and the index of its table.

    If all layers are alike there is one table, without an axis for it, and None.
    """
    if len({(block.rope, block.window) for block in blocks}) == 1:
        return rotary[blocks[0].rope], None
    batch, seq = context.positions.shape
    identity = (jnp.ones((batch, seq, spec.head_dim // 2)), jnp.zeros((batch, seq, spec.head_dim // 2)))
    ropes = list(dict.fromkeys(block.rope for block in blocks))
    cos, sin = (jnp.stack(each) for each in zip(*(rotary[rope] or identity for rope in ropes), strict=True))
    windows = jnp.asarray([seq if block.window is None else min(block.window, seq) for block in blocks], jnp.int32)
    return (cos, sin), (windows, jnp.asarray([ropes.index(block.rope) for block in blocks], jnp.int32))


@jax.custom_vjp
def _barrier(values: Any) -> Any:
    """Return a tree of arrays unchanged; in the backward pass all gradients exist before one is used."""
    return values


_barrier.defvjp(
    lambda values: (values, None),
    lambda _, gradients: (
        jax.lax.platform_dependent(gradients, cpu=lambda each: each, default=jax.lax.optimization_barrier),
    ),
)


@jax.custom_vjp
def save_as_array(x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
    """Return the residual stream unchanged, saved for the backward pass as one array.

    A compiler may instead save the terms of the sum and add them again. With frozen weights it does: Gemma-2B with
    adapters, 16 texts of 1,024 tokens, takes 6.8 GiB of a v5e with this function and 8.4 without.
    """
    array: Array = jax.lax.platform_dependent(x, cpu=lambda each: each, default=jax.lax.optimization_barrier)
    return array


save_as_array.defvjp(lambda x: (save_as_array(x), None), lambda _, gradient: (gradient,))


def backward_barrier(
    layer: Layer, x: Float[Array, "batch seq embed"], *, only_adapters: bool
) -> tuple[Layer, Float[Array, "batch seq embed"]]:
    """Return a layer and its input unchanged; in the backward pass, finish the layer's gradients before the next layer.

    Otherwise a compiler may compute weight gradients late, and the saved activations of two layers exist together.
    Gemma-2B in bfloat16 on eight v5e chips (`submission_tpu.yaml`) takes 12.9 GiB per chip with the barrier and 14.3
    without. Weights stored wider than the compute dtype pass no barrier: their gradients would wait in the wide type.
    CPU compilers do not overlap layers, and nothing is added there. With `only_adapters` other gradients are not
    requested.
    """
    parts: Any = nnx.split(layer, lambda path, _: path[-1] in ("lora_a", "lora_b"), ...)
    structure, adapters, others = parts
    down = layer.mlp.down
    if only_adapters:
        adapters, x = _barrier((adapters, save_as_array(x)))
    elif down.kernel is not None and jnp.dtype(down.kernel.dtype) == down.compute_dtype:
        others, x = _barrier((others, x))
    merged: Layer = nnx.merge(structure, adapters, others)
    return merged, x
