"""Stacks of equal layers inside a decoder: how they are drawn, and the loop that goes through them.

Every layer is drawn from the key that it would have by itself, so a model starts the same either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Key

from trainer.model import rope
from trainer.model.attention import Context, Layer, LayerVariation, text_lengths
from trainer.model.layers import PRODUCT, Dtypes, Linear
from trainer.model.lora import Dropout
from trainer.model.spec import BlockSpec, ModelSpec
from trainer.model.stacking import stack_name, stack_of

Remat = Literal["none", "layer", "dots"]

KEPT: dict[Remat, Any] = {"layer": None, "dots": jax.checkpoint_policies.save_only_these_names(PRODUCT)}
"""What a layer that is computed again keeps beside its input. None: nothing."""


def layer_call(remat: Remat, *, prevent_cse: bool = True) -> Any:
    """Return what runs a layer, which is computed again on the way back as far as `remat` states it."""
    if remat == "none":
        return Layer.__call__
    return nnx.remat(Layer.__call__, prevent_cse=prevent_cse, policy=KEPT[remat])


def layers_stacked(spec: ModelSpec, runs: tuple[range, ...], *, dtypes: Dtypes, rngs: nnx.Rngs) -> dict[str, Layer]:
    """Return a layer for each stack, by `stack_name`, whose every parameter is those of its layers on each other."""
    key, before = rngs.params.key[...], rngs.params.count[...]
    draws = draws_of(spec, spec.blocks[0], dtypes)
    found = {
        stack_name(layers): _stack(
            spec, spec.blocks[layers.start], dtypes, key, before + jnp.asarray(layers, jnp.uint32) * jnp.uint32(draws)
        )
        for layers in runs
    }
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
    spec: ModelSpec,
    x: Float[Array, "batch seq embed"],
    context: Context,
    dropout_key: Key[Array, ""] | None,
    *,
    remat: Remat,
) -> Float[Array, "batch seq embed"]:
    """Return the residual stream after all layers: for each stack a loop, a round of which is one layer."""
    # Between a loop and its backward pass there is nothing for a compiler to find twice.
    call = layer_call(remat, prevent_cse=False)
    for name, stack in sorted(stacks.items(), key=lambda named: stack_of(named[0]).start):
        layers = stack_of(name)
        structure, state = nnx.split(stack)
        turns = turns_of([spec.blocks[layer] for layer in layers], spec, context)

        def once(x: Any, scanned: Any, structure: Any = structure, turns: Any = turns) -> tuple[Any, None]:
            state, number, before, varied = scanned
            here = context
            if turns is not None:
                window, kind = varied
                here = here._replace(varied=LayerVariation(window, turns[0][kind], turns[1][kind]))
            if dropout_key is not None:
                here = here._replace(dropout=Dropout(jax.random.fold_in(dropout_key, number), before))
            x, _ = call(nnx.merge(structure, state), x, here)
            return x, None

        before = jnp.asarray(stack.adapters_before, jnp.int32)
        varied = None if turns is None else turns[2:]
        x, _ = jax.lax.scan(once, x, (state, jnp.asarray(layers, jnp.int32), before, varied))
    return x


def turns_of(
    blocks: Sequence[BlockSpec], spec: ModelSpec, context: Context
) -> tuple[Array, Array, Array, Array] | None:
    """Return how layers see and turn: cosines and sines of each way of turning, each layer's window and its way.

    None: all of them see and turn alike, as the block of any states.
    """
    if len({(block.rope, block.window) for block in blocks}) == 1:
        return None
    batch, seq = context.positions.shape
    still = (jnp.ones((batch, seq, spec.head_dim // 2)), jnp.zeros((batch, seq, spec.head_dim // 2)))
    ways = list(dict.fromkeys(block.rope for block in blocks))
    lengths = text_lengths(context)
    angles = [still if way is None else rope.angles(way, spec.head_dim, context.positions, lengths) for way in ways]
    cos, sin = (jnp.stack(each) for each in zip(*angles, strict=True))
    windows = jnp.asarray([seq if block.window is None else min(block.window, seq) for block in blocks], jnp.int32)
    return cos, sin, windows, jnp.asarray([ways.index(block.rope) for block in blocks], jnp.int32)
