"""The decoder: tokens to hidden states, hidden states to logits; and its parameters by name.

`DecoderConfig` contains everything that determines a decoder. `flatten` and `bind` convert between a decoder and a flat
dictionary of parameters, named by path: `layers.0.attention.query.kernel`. These names appear in checkpoints, hashes
and messages. Hidden states and logits are separate, so that a loss can compute logits in chunks.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key

from trainer.distributed import fetch
from trainer.model.attention import Attention, AttentionKernel, Context, KeyValues, Layer
from trainer.model.layers import Dropout, Dtypes, EmbeddingTable, Kind, Linear, Lora, Norm
from trainer.model.rope import rotary_tables
from trainer.model.spec import ModelSpec
from trainer.model.stacks import (
    Params,
    Remat,
    backward_barrier,
    init_stacks,
    layer_call,
    layer_range,
    scan_stacks,
    stacked_names,
    unstack_layers,
)


class Decoder(nnx.Module):
    """A language model as described by its `ModelSpec`.

    Parameters are stored in `dtypes.params`; matrix products run in `dtypes.compute`; norms, softmax and logits in
    float32. With `remat="layer"` the backward pass saves each layer's input and recomputes the rest (arXiv 1604.06174);
    with `dots` it also saves the outputs of kernels. With `layer_groups` equal layers are stacked, which training
    supports and decoding with a cache does not.
    """

    def __init__(
        self, spec: ModelSpec, *, dtypes: Dtypes, remat: Remat, rngs: nnx.Rngs, layer_groups: tuple[range, ...] = ()
    ) -> None:
        table = partial(EmbeddingTable, embed=spec.embed, std=spec.initializer_std, dtypes=dtypes, rngs=rngs)
        self.spec = spec
        self.remat: Remat = remat
        self.compute_dtype = jnp.dtype(dtypes.compute)
        self.tokens = table(spec.vocab)
        self.positions = table(spec.max_positions) if spec.learned_positions else None
        self.layer_groups = layer_groups
        self.is_adapted = False  # whether any layer has an adapter
        self.layers: Any  # a list of `Layer`, or with `layer_groups` a dictionary of stacks
        if layer_groups:
            self.layers = nnx.Dict(init_stacks(spec, layer_groups, dtypes=dtypes, rngs=rngs))
        else:
            self.layers = nnx.List([Layer(spec, block, dtypes=dtypes, rngs=rngs) for block in spec.blocks])
        self.final_norm = Norm(spec.embed, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes)
        self.head = None if spec.tied_head else table(spec.vocab)

    def hidden(
        self,
        tokens: Int[Array, "batch seq"],
        segments: Int[Array, "batch seq"] | None = None,
        dropout_key: Key[Array, ""] | None = None,
    ) -> Float[Array, "batch seq embed"]:
        """Return the hidden state of each token after the final norm.

        A token attends to itself and the earlier tokens of its text, so right padding needs no mask. `segments` has the
        number of the text of each token in packed rows, each text contiguous; positions restart with every text.
        `dropout_key` enables the dropout of adapters.
        """
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32)[None, :], tokens.shape)
        if segments is not None:
            positions = positions - text_starts(segments)
        context = Context(positions=positions, segments=segments)
        x = self.embed(tokens, positions)
        rotary = rotary_tables(self.spec, positions, segments)
        if self.layer_groups:
            x = scan_stacks(self.layers, self.spec, x, context, rotary, dropout_key, remat=self.remat)
            return self.final_norm(x)
        call = layer_call(self.remat)
        for number, (layer, block) in enumerate(zip(self.layers, self.spec.blocks, strict=True)):
            local = context._replace(rotary=rotary[block.rope])
            if dropout_key is not None:
                local = local._replace(dropout=Dropout(jax.random.fold_in(dropout_key, number)))
            current = layer
            if self.remat != "none":
                current, x = backward_barrier(layer, x, only_adapters=self.is_adapted)
            x, _ = call(current, x, local)
        return self.final_norm(x)

    def extend(
        self, tokens: Int[Array, "batch seq"], context: Context, caches: list[KeyValues]
    ) -> tuple[Float[Array, "batch seq embed"], list[KeyValues]]:
        """Return hidden states of `tokens` that continue the texts in `caches`, and the extended caches."""
        assert not self.layer_groups, "stacked layers have no cache"
        x = self.embed(tokens, context.positions)
        rotary = rotary_tables(self.spec, context.positions, context.segments)
        extended = []
        for layer, block, cache in zip(self.layers, self.spec.blocks, caches, strict=True):
            x, cache = layer(x, context._replace(rotary=rotary[block.rope]), cache)  # noqa: PLW2901
            extended.append(cache)
        return self.final_norm(x), extended

    def logits(self, hidden: Float[Array, "*where embed"]) -> Float[Array, "*where vocab"]:
        """Return unnormalised log-probabilities of the next token, in float32."""
        scores = (self.tokens if self.head is None else self.head).scores(hidden)
        cap = self.spec.final_softcap
        return scores if cap is None else jnp.tanh(scores / cap) * cap

    def embed(
        self, tokens: Int[Array, "batch seq"], positions: Int[Array, "batch seq"]
    ) -> Float[Array, "batch seq embed"]:
        """Return the input of the first layer."""
        x = self.tokens.rows(tokens)
        if self.spec.scale_embeddings:
            # Gemma rounds the factor to the compute dtype first, which matters in bfloat16.
            x = x * jnp.asarray(self.spec.embed**0.5, self.compute_dtype)
        return x if self.positions is None else x + self.positions.rows(positions)

    def empty_caches(self, batch: int, length: int) -> list[KeyValues]:
        """Return zeroed keys and values for every layer: `[batch kv_heads length head_dim]`, in the compute dtype."""
        zeros = partial(jnp.zeros, (batch, self.spec.kv_heads, length, self.spec.head_dim), self.compute_dtype)
        return [KeyValues(zeros(), zeros()) for _ in self.layers]


def text_starts(segments: Int[Array, "batch seq"]) -> Int[Array, "batch seq"]:
    """Return the index of the first token of each token's text: `[1, 1, 2, 2, 2, 0]` gives `[0, 0, 2, 2, 2, 5]`."""
    indices = jnp.broadcast_to(jnp.arange(segments.shape[1], dtype=jnp.int32)[None, :], segments.shape)
    is_first = jnp.concatenate([jnp.ones_like(segments[:, :1], jnp.bool_), segments[:, 1:] != segments[:, :-1]], axis=1)
    return jax.lax.cummax(jnp.where(is_first, indices, 0), axis=1)


class DecoderShapes(NamedTuple):
    """A decoder without arrays: its structure, and its parameters by name as shapes."""

    graphdef: nnx.GraphDef[Decoder]
    shapes: Params


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that determines a decoder except the values of its parameters."""

    spec: ModelSpec
    params_dtype: DTypeLike  # of the stored parameters
    compute_dtype: DTypeLike  # of matrix products
    remat: Remat  # how far layers are recomputed in the backward pass
    deterministic: bool = False  # gradients of products are plain products too (`products.py`)
    adapters: Mapping[str, Lora] = field(default_factory=dict, hash=False)  # by projection: `layers.0.attention.query`
    quantised: Mapping[str, Kind] = field(default_factory=dict, hash=False)  # storage kind of kernels, by projection
    layer_groups: tuple[range, ...] = ()  # equal layers to stack (`equal_layers`), or empty to stack none
    mlp_chunk_tokens: int | None = None  # tokens that an MLP computes together, or None for the whole microbatch

    def build(self, key: Key[Array, ""]) -> Decoder:
        """Return a decoder with random parameters, equal for equal keys.

        Matrices and tables are normal with deviation `spec.initializer_std`, biases 0, norms the identity. Under
        `jax.jit` with `out_shardings` each device initialises its own part.
        """
        dtypes = Dtypes(params=self.params_dtype, compute=self.compute_dtype, deterministic=self.deterministic)
        rngs = nnx.Rngs(params=key)
        decoder = Decoder(self.spec, dtypes=dtypes, remat=self.remat, rngs=rngs, layer_groups=self.layer_groups)
        for name, linear in projections(decoder).items():
            if kind := self.quantised.get(stacked_names(name)[0]):
                linear.quantise(kind)
        for layer in decoder.layers.values() if self.layer_groups else decoder.layers:
            layer.mlp.chunk_tokens = self.mlp_chunk_tokens
        # From a key of their own: the base starts the same with adapters and without.
        _add_adapters(decoder, self.adapters, jax.random.fold_in(key, 1))
        return decoder

    def abstract(self) -> Decoder:
        """Return the decoder with shapes and dtypes instead of arrays."""
        decoder: Decoder = nnx.eval_shape(lambda: self.build(jax.random.key(0)))
        return decoder

    def equal_layers(self) -> tuple[range, ...]:
        """Return the ranges of consecutive layers with parameters of the same names and shapes."""
        own: list[set[tuple[str, object]]] = [set() for _ in self.spec.blocks]
        for name, choice in (*self.adapters.items(), *self.quantised.items()):
            alike = replace(choice, number=0) if isinstance(choice, Lora) else choice
            own[_layer_number(name)].add((name.split(".", 2)[2], alike))
        blocks = [replace(block, rope=None, window=None) for block in self.spec.blocks]
        groups: list[range] = []
        for _, group in groupby((block, frozenset(each)) for block, each in zip(blocks, own, strict=True)):
            first = groups[-1].stop if groups else 0
            groups.append(range(first, first + len(list(group))))
        return tuple(groups)


@functools.lru_cache(maxsize=64)
def decoder_shapes(config: DecoderConfig) -> DecoderShapes:
    """Return the graph definition and the shapes of the parameters; cached for repeated planning."""
    return DecoderShapes(*flatten(config.abstract()))


def build(spec: ModelSpec, *, key: Key[Array, ""], **choices: Any) -> Decoder:
    """Return a decoder with random parameters; `choices` are the other fields of `DecoderConfig`."""
    return DecoderConfig(spec=spec, **choices).build(key)


def abstract(spec: ModelSpec, **choices: Any) -> Decoder:
    """Return a decoder with shapes instead of arrays; `choices` are the other fields of `DecoderConfig`."""
    return DecoderConfig(spec=spec, **choices).abstract()


def _add_adapters(decoder: Decoder, adapters: Mapping[str, Lora], key: Key[Array, ""]) -> None:
    """Add adapters to projections, each initialised from a key of its own by its place among the sorted names.

    Adapters of one shape are initialised in one loop: compiling a loop for each of Gemma-2B's 126 adapters took longer
    than a fifth of the train step.
    """
    decoder.is_adapted = bool(adapters)
    number = {name: place for place, name in enumerate(sorted(adapters))}
    offsets: dict[int, int] = {}  # smallest number of any adapter in each layer
    for name, lora in adapters.items():
        offsets[_layer_number(name)] = min(lora.number, offsets.get(_layer_number(name), lora.number))
    adapted = {name: each for name, each in projections(decoder).items() if stacked_names(name)[0] in adapters}
    by_shape: dict[tuple[int, int, int], list[str]] = {}
    for name, linear in adapted.items():
        by_shape.setdefault((*linear.shape, adapters[stacked_names(name)[0]].rank), []).append(name)
    for (inputs, outputs, rank), names in by_shape.items():
        groups = [stacked_names(name) for name in names]
        numbers = jnp.asarray([number[each] for group in groups for each in group], jnp.uint32)
        keys = jax.vmap(partial(jax.random.fold_in, key))(numbers)
        # A loop, not a batch, which would be fused into each of its slices and computed as often.
        bound = inputs**-0.5  # as in PEFT
        uniform = partial(jax.random.uniform, shape=(inputs, rank), dtype=jnp.float32, minval=-bound, maxval=bound)
        firsts = jax.lax.map(uniform, keys)
        start = 0
        for name, group in zip(names, groups, strict=True):
            lora, first = adapters[group[0]], firsts[start : start + len(group)]
            second = jnp.zeros((len(group), rank, outputs), jnp.float32)  # an adapter adds nothing at first
            if decoder.layer_groups:
                lora = replace(lora, number=lora.number - offsets[_layer_number(group[0])])
            else:
                first, second = first[0], second[0]
            linear = adapted[name]
            linear.lora, linear.lora_a, linear.lora_b = lora, nnx.data(nnx.Param(first)), nnx.data(nnx.Param(second))
            start += len(group)
    for stack, layer in decoder.layers.items() if decoder.layer_groups else ():
        layer.adapter_offsets = tuple(offsets.get(each, 0) for each in layer_range(stack))


def _layer_number(projection: str) -> int:
    return int(projection.split(".")[1])


def projections(decoder: Decoder) -> dict[str, Linear]:
    """Return every projection of every layer or stack by name: `layers.0.attention.query` to `layers.3.mlp.down`."""
    nodes = {".".join(map(str, path)): node for path, node in nnx.iter_graph(decoder)}
    return {name: node for name, node in sorted(nodes.items()) if isinstance(node, Linear)}


def set_attention(decoder: Decoder, kernel: AttentionKernel | None) -> Decoder:
    """Set how the decoder computes attention over whole sequences; None selects `attend`."""
    for _, node in nnx.iter_graph(decoder):
        if isinstance(node, Attention):
            node.kernel = kernel
    return decoder


def disable_adapters(decoder: Decoder) -> Decoder:
    """Switch adapters off: the decoder computes the base model."""
    for linear in projections(decoder).values():
        linear.lora = None
    return decoder


def flatten(decoder: Decoder) -> tuple[nnx.GraphDef[Decoder], Params]:
    """Split a decoder into its structure, hashable and without arrays, and its parameters sorted by name.

    A tied head is one parameter. The values of an abstract decoder are `jax.ShapeDtypeStruct`.
    """
    graphdef, state = nnx.split(decoder)
    flat = {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(state)}
    return graphdef, dict(sorted(flat.items()))


def bind(graphdef: nnx.GraphDef[Decoder], params: Mapping[str, Any]) -> Decoder:
    """Combine structure and parameters: the inverse of `flatten`, cheap inside `jax.jit`."""
    flat: dict[Any, Any] = {
        tuple(int(part) if part.isdecimal() else part for part in name.split(".")): nnx.Param(value)
        for name, value in params.items()
    }
    return nnx.merge(graphdef, nnx.from_flat_state(flat))


def parameter_count(params: Mapping[str, Any]) -> int:
    """Return the number of parameters, tied ones counted once."""
    return sum(int(np.prod(value.shape)) for value in params.values())


def params_sha256(params: Mapping[str, Array]) -> str:
    """Return the SHA-256 over every parameter's name, shape, dtype and bytes, sorted by name.

    For each parameter: the JSON text `["name", [shape], "dtype"]`, a newline, then the elements in C order,
    little-endian. The hash does not depend on sharding or stacking.
    """
    digest = hashlib.sha256()
    single = unstack_layers(params)
    for name in sorted(single):
        value = np.asarray(fetch(single[name]))
        digest.update(json.dumps([name, list(value.shape), str(value.dtype)]).encode() + b"\n")
        content: Any = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        digest.update(content)
    return digest.hexdigest()
