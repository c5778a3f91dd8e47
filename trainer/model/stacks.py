"""Stacks of equal layers inside a decoder: how they are drawn, and the loop that goes through them.

Every layer is drawn from the key that it would have by itself, so a model starts the same either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Key

from trainer.model.attention import Context
from trainer.model.layer import Layer
from trainer.model.layers import Dtypes, Linear
from trainer.model.lora import Dropout
from trainer.model.runs import Run, stack_name
from trainer.model.spec import BlockSpec, ModelSpec

Remat = Literal["none", "layer"]


def layers_stacked(spec: ModelSpec, runs: tuple[Run, ...], *, dtypes: Dtypes, rngs: nnx.Rngs) -> dict[str, Layer]:
    """Return a layer for each stack, by `stack_name`, whose every parameter is those of its layers on each other."""
    key, before = rngs.params.key[...], rngs.params.count[...]
    found: dict[str, Layer] = {}
    draws = 0
    for layers in (layers for run in runs for layers in run.stacks):
        block = spec.blocks[layers.start]
        draws = draws or draws_of(spec, block, dtypes)
        counts = before + jnp.asarray(layers, jnp.uint32) * jnp.uint32(draws)
        found[stack_name(layers)] = _stack(spec, block, dtypes, key, counts)
    rngs.params.count[...] = before + jnp.uint32(draws * spec.layers)
    return found


def draws_of(spec: ModelSpec, block: BlockSpec, dtypes: Dtypes) -> int:
    """Return how many keys a layer takes: one for each projection."""
    layer = nnx.eval_shape(lambda: Layer(spec, block, dtypes=dtypes, rngs=nnx.Rngs(params=0)))
    return sum(isinstance(node, Linear) for _, node in nnx.iter_graph(layer))


def _stack(spec: ModelSpec, block: BlockSpec, dtypes: Dtypes, key: Key[Array, ""], counts: Array) -> Layer:
    """Return layers on each other, each drawn as if so many keys had been taken before it."""
    structure: list[nnx.GraphDef[Layer]] = []

    def drawn(count: Array) -> Any:
        rngs = nnx.Rngs(params=key)
        rngs.params.count[...] = count
        graphdef, state = nnx.split(Layer(spec, block, dtypes=dtypes, rngs=rngs))
        structure.append(graphdef)
        return state

    states = jax.vmap(drawn)(counts)
    return nnx.merge(structure[0], states)


def through_stacks(
    stacks: Mapping[str, Layer],
    runs: tuple[Run, ...],
    x: Float[Array, "batch seq embed"],
    context: Context,
    dropout_key: Key[Array, ""] | None,
    *,
    remat: Remat,
) -> Float[Array, "batch seq embed"]:
    """Return the residual stream after all layers: for each run a loop, a round of which is the pattern once."""
    # Between a loop and its backward pass there is nothing for a compiler to find twice.
    call = nnx.remat(Layer.__call__, prevent_cse=False) if remat == "layer" else Layer.__call__
    for run in runs:
        layers = [stacks[stack_name(each)] for each in run.stacks]
        split = [nnx.split(layer) for layer in layers]
        numbers = jnp.asarray(list(zip(*run.stacks, strict=True)), jnp.int32)
        before = jnp.asarray(list(zip(*(layer.adapters_before for layer in layers), strict=True)), jnp.int32)

        def once(x: Any, scanned: Any, structures: Any = tuple(graphdef for graphdef, _ in split)) -> tuple[Any, None]:
            states, numbers, before = scanned
            for place, structure in enumerate(structures):
                here = context
                if dropout_key is not None:
                    key = jax.random.fold_in(dropout_key, numbers[place])
                    here = context._replace(dropout=Dropout(key, before[place]))
                x, _ = call(nnx.merge(structure, states[place]), x, here)
            return x, None

        x, _ = jax.lax.scan(once, x, ([state for _, state in split], numbers, before))
    return x
