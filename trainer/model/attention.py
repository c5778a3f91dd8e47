"""Causal self-attention: projections, rotary positions, grouped heads, and the keys and values kept while generating.

Each layer makes its own mask from `Context` and its window. The softmax is taken in float32 whatever the compute dtype.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from trainer.model import rope
from trainer.model.kernels import AttentionKernel
from trainer.model.layers import Dtypes, Linear, Mlp, Norm
from trainer.model.lora import Dropout
from trainer.model.products import product, product_with_rows
from trainer.model.spec import BlockSpec, ModelSpec


class KeyValues(NamedTuple):
    """Keys and values of one layer at every slot of the cache, each `[batch kv_heads cache head_dim]`."""

    keys: Array
    values: Array


class LayerVariation(NamedTuple):
    """How one layer sees and turns, where a part of a program stands for several that differ in it."""

    window: Int[Array, ""]
    """At least the number of keys where it sees all of them."""

    cos: Float[Array, "batch seq half"]
    """With 1, and 0 in `sin`, nothing is turned."""

    sin: Float[Array, "batch seq half"]


class Context(NamedTuple):
    """Where the tokens of a call stand: all that attention needs besides the tokens."""

    positions: Int[Array, "batch seq"]
    """Of each token in its text."""

    segments: Int[Array, "batch seq"] | None = None
    """Number of the text that a token of a packed row belongs to; texts do not see each other. None: one text a row."""

    slot: Int[Array, ""] | None = None
    """Place of the first token in the cache. None: there is no cache."""

    padding: Int[Array, " batch"] | None = None
    """Slots at the start of each row's cache that hold no token. None: none."""

    dropout: Dropout | None = None
    """For adapters that drop inputs. None: nothing is dropped."""

    varied: LayerVariation | None = None
    """None: a layer sees and turns as its block states."""


class Attention(nnx.Module):
    """Multi-head, grouped-query (arXiv 2305.13245) or multi-query attention, by the number of key heads."""

    def __init__(self, spec: ModelSpec, block: BlockSpec, *, out_std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        def linear(inputs: int, outputs: int, std: float, *, bias: bool) -> Linear:
            return Linear(inputs, outputs, bias=bias, std=std, dtypes=dtypes, rngs=rngs)

        def norm() -> Norm | None:
            wanted = block.query_key_norm
            return Norm(spec.head_dim, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes) if wanted else None

        std, bias = spec.initializer_std, spec.attention_bias
        self.block = block
        self.head_dim = spec.head_dim
        self.scale = spec.query_scale
        self.softcap = spec.attention_softcap
        self.query = linear(spec.embed, spec.heads * spec.head_dim, std, bias=bias)
        self.key = linear(spec.embed, spec.kv_heads * spec.head_dim, std, bias=bias)
        self.value = linear(spec.embed, spec.kv_heads * spec.head_dim, std, bias=bias)
        self.out = linear(spec.heads * spec.head_dim, spec.embed, out_std, bias=spec.output_bias)
        self.query_norm = norm()
        self.key_norm = norm()
        self.kernel: AttentionKernel | None = None
        """How whole sequences are read. None, and with a cache: by `attend`."""

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: KeyValues | None = None
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues | None]:
        """Return what each token reads from the tokens it sees, and the cache with `x` written at `context.slot`."""
        query, keys, values = self.project(x, context)
        if cache is not None:
            assert context.slot is not None, "a cache is written at a slot"
            cache = KeyValues(
                jax.lax.dynamic_update_slice_in_dim(cache.keys, keys, context.slot, axis=2),
                jax.lax.dynamic_update_slice_in_dim(cache.values, values, context.slot, axis=2),
            )
            keys, values = cache
        window = self.block.window if context.varied is None else context.varied.window
        if self.kernel is None or cache is not None:
            mask = visible(context, window=window, keys=keys.shape[2])
            read = attend(query, keys, values, mask, scale=self.scale, softcap=self.softcap)
        else:
            scale = self.head_dim**-0.5 if self.scale is None else self.scale
            segments, softcap = context.segments, self.softcap
            read = self.kernel.attend(
                query, keys, values, window=window, segments=segments, scale=scale, softcap=softcap
            )
        batch, heads, seq, head_dim = read.shape
        merged = read.transpose(0, 2, 1, 3).reshape(batch, seq, heads * head_dim)
        return self.out(merged, context.dropout), cache

    def project(
        self, x: Float[Array, "batch seq embed"], context: Context
    ) -> tuple[
        Float[Array, "batch heads seq head_dim"],
        Float[Array, "batch kv_heads seq head_dim"],
        Float[Array, "batch kv_heads seq head_dim"],
    ]:
        """Return queries, keys and values; queries and keys normalised and turned where the block states it."""
        query, keys, values = (self.split(linear(x, context.dropout)) for linear in (self.query, self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None:
            query, keys = self.query_norm(query), self.key_norm(keys)
        if context.varied is not None:
            cos, sin = context.varied.cos, context.varied.sin
        elif self.block.rope is None:
            return query, keys, values
        else:
            cos, sin = rope.angles(self.block.rope, self.head_dim, context.positions, text_lengths(context))
        return rope.rotate(query, cos, sin), rope.rotate(keys, cos, sin), values

    def split(self, x: Float[Array, "batch seq width"]) -> Float[Array, "batch heads seq head_dim"]:
        """Return `x` with its last axis cut into heads."""
        batch, seq, width = x.shape
        return x.reshape(batch, seq, width // self.head_dim, self.head_dim).transpose(0, 2, 1, 3)


def visible(context: Context, *, window: int | Int[Array, ""] | None, keys: int) -> Bool[Array, "#batch seq keys"]:
    """Return which keys (last axis) each token sees: itself and those before it, in its window and its own text.

    With window 2 the third token sees the second and itself. Padding sees only padding, or what is not used.

    Args:
        context: where the tokens stand.
        window: how many tokens are seen. None: all.
        keys: slots of the cache or, without one, tokens of the call.
    """
    tokens = jnp.arange(context.positions.shape[1], dtype=jnp.int32)[:, None]
    if context.slot is not None:
        tokens = tokens + context.slot
    slots = jnp.arange(keys, dtype=jnp.int32)[None, :]
    seen = slots <= tokens
    if not (window is None or (isinstance(window, int) and window >= keys)):
        seen = seen & (tokens - slots < window)
    seen = seen[None]
    if context.padding is not None:
        seen = seen & (slots[None] >= context.padding[:, None, None])
    if context.segments is not None:
        seen = seen & (context.segments[:, :, None] == context.segments[:, None, :])
    return seen


def text_lengths(context: Context) -> Int[Array, "batch seq"]:
    """Return for each token the length of its text, as far as it is in this call."""
    if context.segments is None:
        longest = jnp.max(context.positions, axis=1, keepdims=True)
        return jnp.broadcast_to(longest, context.positions.shape) + 1
    same = context.segments[:, :, None] == context.segments[:, None, :]
    return jnp.max(jnp.where(same, context.positions[:, None, :], 0), axis=-1) + 1


def attend(
    query: Float[Array, "batch heads seq head_dim"],
    keys: Float[Array, "batch kv_heads cache head_dim"],
    values: Float[Array, "batch kv_heads cache head_dim"],
    mask: Bool[Array, "#batch seq cache"],
    *,
    scale: float | None = None,
    softcap: float | None = None,
) -> Float[Array, "batch heads seq head_dim"]:
    """Return `softmax(q·kᵀ · scale) · v` over the keys that `mask` shows (arXiv 1706.03762, eq. 1).

    The scale is `head_dim ** -0.5` unless it is given.
    Query heads share a key head in runs: with 4 heads and 2 key heads, heads 0 and 1 read key head 0. One query `[1]`,
    keys `[0], [ln 3]`, values `[0], [4]`: the weights are 1/4 and 3/4, the result `[3]`. With a soft cap scores become
    `cap · tanh(score / cap)` (arXiv 2408.00118). A query that sees nothing gets the plain mean, never a NaN; it can
    only be padding.
    """
    batch, heads, seq, head_dim = query.shape
    kv_heads, cache = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    # The heads that share a key head are laid behind each other as if they were further queries: no key is repeated,
    # and the products stay plain batched ones, which compilers do best.
    queries = query.reshape(batch, kv_heads, group * seq, head_dim)
    scores = product_with_rows(queries, keys, jnp.float32)
    scores = scores * (head_dim**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    scores = scores.reshape(batch, kv_heads, group, seq, cache)
    # The lowest finite number: the weight of an unseen key is exactly 0, and unlike −∞ it never makes a NaN.
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype).reshape(batch, kv_heads, group * seq, cache)
    return product(weights, values).reshape(query.shape)


class Layer(nnx.Module):
    """One block: `x + attention(norm(x))`, then `x + mlp(norm(x))`; what is added may be normalised first."""

    def __init__(self, spec: ModelSpec, block: BlockSpec, *, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        def norm() -> Norm:
            return Norm(spec.embed, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes)

        std = residual_std(spec)
        self.attention_norm = norm()
        self.attention = Attention(spec, block, out_std=std, dtypes=dtypes, rngs=rngs)
        self.attention_post_norm = norm() if block.post_norms else None
        self.mlp_norm = norm()
        self.mlp = Mlp(spec, down_std=std, dtypes=dtypes, rngs=rngs)
        self.mlp_post_norm = norm() if block.post_norms else None
        self.adapters_before: tuple[int, ...] = ()
        """Of each layer of a stack: how many adapters come before its own. Empty where nothing is stacked."""

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: KeyValues | None = None
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues | None]:
        """Return the residual stream after this block, and the cache with these tokens in it."""
        read, cache = self.attention(self.attention_norm(x), context, cache)
        x = x + (read if self.attention_post_norm is None else self.attention_post_norm(read))
        made = self.mlp(self.mlp_norm(x), context.dropout)
        return x + (made if self.mlp_post_norm is None else self.mlp_post_norm(made)), cache


def residual_std(spec: ModelSpec) -> float:
    """Return the deviation of projections into the residual stream: smaller by `sqrt(2 · layers)` in GPT-2.

    GPT-2 (Radford et al. 2019, section 2.3) divides by the square root of the number of residual layers; there are two
    in each block. For 0.02 and 2 layers: 0.01.
    """
    return spec.initializer_std / (2 * spec.layers) ** 0.5 if spec.scale_residual_init else spec.initializer_std
