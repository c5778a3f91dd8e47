"""A decoder from its spec: with random parameters, or with shapes only.

Reading parameters from files is in `loading.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from trainer.model.attention import Attention
from trainer.model.decoder import Decoder
from trainer.model.kernels import AttentionKernel
from trainer.model.layers import Dtypes, Linear
from trainer.model.lora import Lora, first_matrix
from trainer.model.quantised import Kind
from trainer.model.spec import BlockSpec, ModelSpec
from trainer.model.stacking import members, stack_of
from trainer.model.stacks import Remat


def build(
    spec: ModelSpec,
    *,
    key: Key[Array, ""],
    params_dtype: DTypeLike,
    compute_dtype: DTypeLike,
    remat: Remat,
    one_path: bool = False,
    adapters: Mapping[str, Lora] | None = None,
    quantised: Mapping[str, Kind] | None = None,
    runs: tuple[range, ...] = (),
    mlp_chunk_tokens: int | None = None,
) -> Decoder:
    """Return a decoder with random parameters, equal for equal keys.

    Matrices and tables are normal with deviation `spec.initializer_std`, biases 0, norms the identity. GPT-2 also
    starts its residual projections smaller (see `decoder.residual_std`). Under `jax.jit` with `out_shardings` each
    device makes its own part.

    Args:
        spec: what to build.
        key: a typed key, `jax.random.key(seed)`.
        params_dtype: element type of the stored parameters; drawn in float32 and rounded to it.
        compute_dtype: element type of matrix products.
        remat: `layer` keeps only each layer's input for the backward pass.
        one_path: whether the gradient of a product is a plain product too (`products.py`).
        adapters: by the name of the projection that gets one, such as `layers.0.attention.query` (`projections`).
        quantised: by the name of the projection whose kernel is kept in few bits.
        runs: equal layers that are stacked, as `runs_of` distinguishes them by `layer_kinds`. None: every layer by
            itself.
        mlp_chunk_tokens: tokens that an MLP computes at one time (`chunks.py`). None: all of a microbatch.
    """
    dtypes = Dtypes(params=params_dtype, compute=compute_dtype, one_path=one_path)
    decoder = Decoder(spec, dtypes=dtypes, remat=remat, rngs=nnx.Rngs(params=key), runs=runs)
    for name, linear in projections(decoder).items():
        if kind := (quantised or {}).get(members(name)[0]):
            linear.quantise(kind)
    for layer in decoder.layers.values() if runs else decoder.layers:
        layer.mlp.chunk_tokens = mlp_chunk_tokens
    # Apart from the model's own draws: a model starts the same with adapters and without.
    add_adapters(decoder, adapters or {}, jax.random.fold_in(key, 1))
    return decoder


def add_adapters(decoder: Decoder, adapters: Mapping[str, Lora], key: Key[Array, ""]) -> None:
    """Give projections their adapters, each drawn from a key of its own by its place among all names.

    Those of one shape are drawn by one loop over their keys, with the bits that each has by itself: a compiler took
    longer for a loop of each of Gemma-2B's 126 than for a fifth of the train step.
    """
    decoder.is_adapted = bool(adapters)
    places = {name: place for place, name in enumerate(sorted(adapters))}
    before = first_numbers(adapters)
    adapted = {name: each for name, each in projections(decoder).items() if members(name)[0] in adapters}
    alike: dict[tuple[int, int, int], list[str]] = {}
    for name, linear in adapted.items():
        alike.setdefault((*linear.shape, adapters[members(name)[0]].rank), []).append(name)
    for (inputs, outputs, rank), names in alike.items():
        of_each = [members(name) for name in names]
        numbers = [places[member] for group in of_each for member in group]
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.asarray(numbers, jnp.uint32))
        # A loop, not a batch: that would be fused into every part that is taken of it, and drawn as often.
        firsts = jax.lax.map(partial(first_matrix, inputs=inputs, rank=rank), keys)
        at = 0
        for name, group in zip(names, of_each, strict=True):
            lora, first = adapters[group[0]], firsts[at : at + len(group)]
            second = jnp.zeros((len(group), rank, outputs), jnp.float32)  # an adapter adds nothing at first
            if decoder.runs:
                lora = replace(lora, number=lora.number - before[layer_of(group[0])])
            else:
                first, second = first[0], second[0]
            adapted[name].add_lora(lora, first, second)
            at += len(group)
    for stack, layer in decoder.layers.items() if decoder.runs else ():
        layer.adapters_before = tuple(before.get(number, 0) for number in stack_of(stack))


def first_numbers(adapters: Mapping[str, Lora]) -> dict[int, int]:
    """Return the smallest number of any adapter in each layer that has one."""
    found: dict[int, int] = {}
    for name, lora in adapters.items():
        found[layer_of(name)] = min(lora.number, found.get(layer_of(name), lora.number))
    return found


def layer_of(name: str) -> int:
    """Return the layer of a projection: 3 of `layers.3.mlp.down`."""
    return int(name.split(".")[1])


def layer_kinds(
    spec: ModelSpec, adapters: Mapping[str, Lora], quantised: Mapping[str, Kind]
) -> list[tuple[BlockSpec, frozenset[tuple[str, object]]]]:
    """Return what each layer is: equal ones have parameters of the same names and shapes."""
    own: list[set[tuple[str, object]]] = [set() for _ in spec.blocks]
    for name, lora in adapters.items():
        own[layer_of(name)].add((name.split(".", 2)[2], replace(lora, number=0)))
    for name, kind in quantised.items():
        own[layer_of(name)].add((name.split(".", 2)[2], kind))
    return [
        (replace(block, rope=None, window=None), frozenset(each)) for block, each in zip(spec.blocks, own, strict=True)
    ]


def projections(decoder: Decoder) -> dict[str, Linear]:
    """Return every projection of every layer or stack by name: `layers.0.attention.query` to `layers.3.mlp.down`."""
    nodes = {".".join(map(str, path)): node for path, node in nnx.iter_graph(decoder)}
    return {name: node for name, node in sorted(nodes.items()) if isinstance(node, Linear)}


def attended_by(decoder: Decoder, kernel: AttentionKernel | None) -> Decoder:
    """Return the decoder, whose attention over whole sequences is computed by a kernel. None: by `attend`."""
    for _, node in nnx.iter_graph(decoder):
        if isinstance(node, Attention):
            node.kernel = kernel
    return decoder


def without_adapters(decoder: Decoder) -> Decoder:
    """Return the decoder with its adapters switched off: what it was before they were added."""
    for linear in projections(decoder).values():
        linear.lora = None
    return decoder


def abstract(
    spec: ModelSpec,
    *,
    params_dtype: DTypeLike,
    compute_dtype: DTypeLike,
    remat: Remat,
    one_path: bool = False,
    adapters: Mapping[str, Lora] | None = None,
    quantised: Mapping[str, Kind] | None = None,
    runs: tuple[range, ...] = (),
    mlp_chunk_tokens: int | None = None,
) -> Decoder:
    """Return the decoder with shapes and dtypes in place of arrays; takes no memory for parameters."""

    def shapes_only() -> Decoder:
        return build(
            spec,
            key=jax.random.key(0),
            params_dtype=params_dtype,
            compute_dtype=compute_dtype,
            remat=remat,
            one_path=one_path,
            adapters=adapters,
            quantised=quantised,
            runs=runs,
            mlp_chunk_tokens=mlp_chunk_tokens,
        )

    decoder: Decoder = nnx.eval_shape(shapes_only)
    return decoder
