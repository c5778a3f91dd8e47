"""Attention in a loop over blocks of queries and keys, on any device: the scores of one pair of blocks exist at a time.

The softmax is taken as its sum grows (arXiv 1805.02867), and the gradient computes the scores again (arXiv 2205.14135,
algorithms 1 and 4). Pairs in which no query sees a key are not in the loop: of causal attention nearly half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trainer.model.products import product, product_with_rows

NAME = "blockwise_forward"
"""What the call of `blockwise_forward` is named in a traced program."""
BLOCK = 512
"""Tokens of a block; shorter sequences are one."""


@dataclass(frozen=True, kw_only=True)
class BlockwisePlan:
    """What is known of the scores while a program is made."""

    block: int
    blocks: int
    window: int | None
    scale: float
    softcap: float | None

    def pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """Return the blocks of queries and of keys that see each other, those of one block of queries together."""
        behind = self.blocks if self.window is None else -(-(self.window - 1) // self.block)
        return np.array(
            [(row, column) for row in range(self.blocks) for column in range(max(row - behind, 0), row + 1)], np.int32
        )


class Softmax(NamedTuple):
    """A softmax under way, `[blocks batch kv_heads rows …]`, all in float32."""

    largest: Array
    total: Array
    """Of the exponentials, each divided by that of the largest score."""
    read: Array
    """The values, weighted by them."""


def blockwise(
    query: Float[Array, "batch heads seq head_dim"],
    keys: Float[Array, "batch kv_heads seq head_dim"],
    values: Float[Array, "batch kv_heads seq head_dim"],
    segments: Int[Array, "batch seq"] | None,
    varied: Int[Array, ""] | None = None,
    *,
    window: int | None,
    scale: float,
    softcap: float | None,
) -> Float[Array, "batch heads seq head_dim"]:
    """Return attention as `AttentionKernel.attend` describes it, for one device.

    Args:
        query: of each token.
        keys: of each token.
        values: of each token.
        segments: number of the text of each token. None: one text a row.
        varied: a window that only the running program knows. None: it is known.
        window: how many tokens are seen. None: all.
        scale: of the scores.
        softcap: bends the scores. None: they are not bent.
    """
    batch, heads, length, head_dim = query.shape
    kv_heads = keys.shape[1]
    block = min(BLOCK, length)
    blocks = -(-length // block)
    # What is added lies behind all tokens, and none of them sees it.
    added = ((0, 0), (0, 0), (0, blocks * block - length), (0, 0))
    plan = BlockwisePlan(block=block, blocks=blocks, window=window, scale=scale, softcap=softcap)
    # As in `attend`, heads that share a key head are laid behind each other.
    queries = jnp.pad(query, added).reshape(batch, kv_heads, heads // kv_heads, blocks, block, head_dim)
    queries = queries.transpose(3, 0, 1, 2, 4, 5).reshape(blocks, batch, kv_heads, -1, head_dim)
    keys, values = (
        jnp.pad(each, added).reshape(batch, kv_heads, blocks, block, head_dim).transpose(2, 0, 1, 3, 4)
        for each in (keys, values)
    )
    if segments is not None:
        segments = jnp.pad(segments, added[:1] + added[2:3]).reshape(batch, blocks, block).transpose(1, 0, 2)
    read = _attend(queries, keys, values, segments, varied, plan)
    read = read.reshape(blocks, batch, kv_heads, heads // kv_heads, block, head_dim).transpose(1, 2, 3, 0, 4, 5)
    return read.reshape(batch, heads, blocks * block, head_dim)[:, :, :length]


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attend(
    queries: Float[Array, "blocks batch kv_heads rows head_dim"],
    keys: Float[Array, "blocks batch kv_heads block head_dim"],
    values: Float[Array, "blocks batch kv_heads block head_dim"],
    segments: Int[Array, "blocks batch block"] | None,
    varied: Int[Array, ""] | None,
    plan: BlockwisePlan,
) -> Float[Array, "blocks batch kv_heads rows head_dim"]:
    read: Array = blockwise_forward(queries, keys, values, segments, varied, plan)[0]
    return read


@partial(jax.jit, static_argnums=5)
def blockwise_forward(
    queries: Array, keys: Array, values: Array, segments: Array | None, varied: Array | None, plan: BlockwisePlan
) -> tuple[Array, Array]:
    """Return what each query reads, and the logarithm of the sum of its exponentials."""

    def pair(found: Softmax, places: Array) -> tuple[Softmax, None]:
        row, column = places[0], places[1]
        scores = _scores(queries[row], keys[column], plan)
        scores = _hide(scores, _mask(places, segments, varied, plan), plan)
        before = Softmax(*(each[row] for each in found))
        largest = jnp.maximum(before.largest, jnp.max(scores, axis=-1, keepdims=True))
        # A row that has seen nothing yet has the weight 1 for what is hidden; what it sees later makes that 0.
        weights, kept = jnp.exp(scores - largest), jnp.exp(before.largest - largest)
        added = product(weights.astype(values.dtype), values[column], jnp.float32)
        total = before.total * kept + jnp.sum(weights, axis=-1, keepdims=True)
        after = Softmax(largest, total, before.read * kept + added)
        return Softmax(*(whole.at[row].set(part) for whole, part in zip(found, after, strict=True))), None

    nothing = _zeros_after(queries)
    start = Softmax(nothing[..., :1] + jnp.finfo(jnp.float32).min, nothing[..., :1], nothing)
    found, _ = jax.lax.scan(pair, start, jnp.asarray(plan.pairs()))
    return (found.read / found.total).astype(queries.dtype), found.largest + jnp.log(found.total)


def _forward(
    queries: Array, keys: Array, values: Array, segments: Array | None, varied: Array | None, plan: BlockwisePlan
) -> tuple[Array, tuple[Array | None, ...]]:
    read, logarithms = blockwise_forward(queries, keys, values, segments, varied, plan)
    return read, (queries, keys, values, segments, varied, read, logarithms)


@partial(jax.jit, static_argnums=0)
def blockwise_backward(plan: BlockwisePlan, kept: tuple[Any, ...], gradient: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of queries, keys and values."""
    queries, keys, values, segments, varied, read, logarithms = kept
    inside = jnp.sum(gradient.astype(jnp.float32) * read.astype(jnp.float32), axis=-1, keepdims=True)

    def pair(found: tuple[Array, ...], places: Array) -> tuple[tuple[Array, ...], None]:
        row, column = places[0], places[1]
        query, key, above = queries[row], keys[column], gradient[row]
        scores = _scores(query, key, plan)
        weights = jnp.exp(_hide(scores, _mask(places, segments, varied, plan), plan) - logarithms[row])
        of_scores = weights * (product_with_rows(above, values[column], jnp.float32) - inside[row])
        if plan.softcap is not None:
            of_scores = of_scores * (1 - jnp.square(scores / plan.softcap))
        of_scores = (of_scores * plan.scale).astype(query.dtype)
        of_query, of_key, of_value = found
        return (
            of_query.at[row].add(product(of_scores, key, jnp.float32)),
            of_key.at[column].add(product(jnp.swapaxes(of_scores, -1, -2), query, jnp.float32)),
            of_value.at[column].add(product(jnp.swapaxes(weights.astype(above.dtype), -1, -2), above, jnp.float32)),
        ), None

    start = tuple(_zeros_after(each) for each in (gradient, keys, values))
    found, _ = jax.lax.scan(pair, start, jnp.asarray(plan.pairs()))
    of_queries, of_keys, of_values = found
    return of_queries.astype(queries.dtype), of_keys.astype(keys.dtype), of_values.astype(values.dtype)


def _backward(plan: BlockwisePlan, kept: tuple[Any, ...], gradient: Array) -> tuple[Array, Array, Array, None, None]:
    return (*blockwise_backward(plan, kept, gradient), None, None)


_attend.defvjp(_forward, _backward)


def _zeros_after(x: Array) -> Array:
    """Return zeros in float32 that exist when `x` does.

    Of plain ones a compiler for GPUs makes the copies of all layers at the begin of a step.
    """
    return x.astype(jnp.float32) * 0


def _scores(query: Array, key: Array, plan: BlockwisePlan) -> Float[Array, "batch kv_heads rows block"]:
    scores = product_with_rows(query, key, jnp.float32) * plan.scale
    return scores if plan.softcap is None else jnp.tanh(scores / plan.softcap) * plan.softcap


def _hide(scores: Array, seen: Array, plan: BlockwisePlan) -> Array:
    """Return scores with the lowest finite number where a key is not seen."""
    batch, kv_heads, rows, block = scores.shape
    of_heads = scores.reshape(batch, kv_heads, rows // plan.block, plan.block, block)
    return jnp.where(seen[:, None, None], of_heads, jnp.finfo(jnp.float32).min).reshape(scores.shape)


def _mask(
    places: Array, segments: Array | None, varied: Array | None, plan: BlockwisePlan
) -> Bool[Array, "#batch block block"]:
    """Return which keys of a block (last axis) each query of another sees."""
    tokens, others = (places[each] * plan.block + jnp.arange(plan.block, dtype=jnp.int32) for each in (0, 1))
    behind = tokens[:, None] - others[None, :]
    seen = behind >= 0
    for window in (plan.window, varied):
        seen = seen if window is None else seen & (behind < window)
    seen = seen[None]
    if segments is None:
        return seen
    return seen & (segments[places[0]][:, :, None] == segments[places[1]][:, None, :])
