"""Causal self-attention: projections, rotary positions, grouped heads, and the keys and values kept while generating.

The softmax is taken in float32 whatever the compute dtype. Masks are made by the caller (`decoder.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from trainer.model.layers import Dtypes, Linear
from trainer.model.spec import ModelSpec


class KeyValues(NamedTuple):
    """Keys and values of one layer at every position of the cache, each `[batch kv_heads cache head_dim]`."""

    keys: Array
    values: Array


class Attention(nnx.Module):
    """Multi-head, grouped-query (arXiv 2305.13245) or multi-query attention, by the number of key heads."""

    def __init__(self, spec: ModelSpec, *, out_std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        def linear(inputs: int, outputs: int, std: float) -> Linear:
            return Linear(inputs, outputs, bias=spec.attention_bias, std=std, dtypes=dtypes, rngs=rngs)

        self.head_dim = spec.head_dim
        self.rope_theta = spec.rope_theta if spec.positions == "rotary" else None
        self.query = linear(spec.embed, spec.heads * spec.head_dim, spec.initializer_std)
        self.key = linear(spec.embed, spec.kv_heads * spec.head_dim, spec.initializer_std)
        self.value = linear(spec.embed, spec.kv_heads * spec.head_dim, spec.initializer_std)
        self.out = linear(spec.heads * spec.head_dim, spec.embed, out_std)

    def __call__(
        self,
        x: Float[Array, "batch seq embed"],
        positions: Int[Array, "batch seq"],
        mask: Bool[Array, "#batch seq seq"],
    ) -> Float[Array, "batch seq embed"]:
        """Return what each position reads from those that `mask` lets it see (query axis first)."""
        query, keys, values = self.project(x, positions)
        return self.merge(attend(query, keys, values, mask))

    def extend(
        self,
        x: Float[Array, "batch seq embed"],
        positions: Int[Array, "batch seq"],
        mask: Bool[Array, "#batch seq cache"],
        cache: KeyValues,
        slot: Int[Array, ""],
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues]:
        """Write keys and values of `x` into the cache from `slot` on, then read the whole cache through `mask`."""
        query, keys, values = self.project(x, positions)
        kept = KeyValues(
            jax.lax.dynamic_update_slice_in_dim(cache.keys, keys, slot, axis=2),
            jax.lax.dynamic_update_slice_in_dim(cache.values, values, slot, axis=2),
        )
        return self.merge(attend(query, kept.keys, kept.values, mask)), kept

    def project(
        self, x: Float[Array, "batch seq embed"], positions: Int[Array, "batch seq"]
    ) -> tuple[
        Float[Array, "batch heads seq head_dim"],
        Float[Array, "batch kv_heads seq head_dim"],
        Float[Array, "batch kv_heads seq head_dim"],
    ]:
        """Return queries, keys and values, queries and keys turned by their position where positions are rotary."""
        query, keys, values = (self.split(linear(x)) for linear in (self.query, self.key, self.value))
        if self.rope_theta is None:
            return query, keys, values
        return rotate(query, positions, self.rope_theta), rotate(keys, positions, self.rope_theta), values

    def split(self, x: Float[Array, "batch seq width"]) -> Float[Array, "batch heads seq head_dim"]:
        """Return `x` with its last axis cut into heads."""
        batch, seq, width = x.shape
        return x.reshape(batch, seq, width // self.head_dim, self.head_dim).transpose(0, 2, 1, 3)

    def merge(self, x: Float[Array, "batch heads seq head_dim"]) -> Float[Array, "batch seq embed"]:
        """Return the heads side by side through the output projection."""
        batch, heads, seq, head_dim = x.shape
        return self.out(x.transpose(0, 2, 1, 3).reshape(batch, seq, heads * head_dim))


def attend(
    query: Float[Array, "batch heads seq head_dim"],
    keys: Float[Array, "batch kv_heads cache head_dim"],
    values: Float[Array, "batch kv_heads cache head_dim"],
    mask: Bool[Array, "#batch seq cache"],
) -> Float[Array, "batch heads seq head_dim"]:
    """Return `softmax(q·kᵀ / sqrt(head_dim)) · v` over the keys that `mask` shows (arXiv 1706.03762, eq. 1).

    Query heads share a key head in runs: with 4 heads and 2 key heads, heads 0 and 1 read key head 0. One query `[1]`,
    keys `[0], [ln 3]`, values `[0], [4]`: the weights are 1/4 and 3/4, the result `[3]`. A query that sees nothing gets
    the plain mean, never a NaN; it can only be padding.
    """
    batch, heads, seq, head_dim = query.shape
    kv_heads, cache = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    # The heads that share a key head are laid behind each other as if they were further queries: no key is repeated,
    # and the products stay plain batched ones, which compilers do best.
    queries = query.reshape(batch, kv_heads, group * seq, head_dim)
    scores = jnp.einsum("BKQD,BKTD->BKQT", queries, keys, preferred_element_type=jnp.float32) * head_dim**-0.5
    scores = scores.reshape(batch, kv_heads, group, seq, cache)
    # The lowest finite number: the weight of an unseen key is exactly 0, and unlike −∞ it never makes a NaN.
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype).reshape(batch, kv_heads, group * seq, cache)
    return jnp.einsum("BKQT,BKTD->BKQD", weights, values).reshape(query.shape)


def rotate(
    x: Float[Array, "batch heads seq head_dim"], positions: Int[Array, "batch seq"], theta: float
) -> Float[Array, "batch heads seq head_dim"]:
    """Turn each pair of a head by an angle that grows with its position (RoPE, arXiv 2104.09864, eq. 34).

    Pair i has the angle `position · theta^(−2i / head_dim)`. As in Hugging Face's files, a pair is element i of the
    first half and element i of the second, where the paper takes neighbours. `[1, 0]` at position 1: `[cos 1, sin 1]`.
    Computed in float32, given back in the dtype of `x`.
    """
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions.astype(jnp.float32)[:, None, :, None] * frequency[None, None, None, :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
