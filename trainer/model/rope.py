"""Rotary positions and their context extensions.

The formulas are those of transformers (modeling_rope_utils.py), so that a checkpoint means the same here. Frequencies
that do not depend on the text are computed once, in float64, and enter the program as constants.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from trainer.model.spec import ModelSpec, Rope

Rotary = tuple[Float[Array, "batch seq half"], Float[Array, "batch seq half"]]
"""Cosine and sine of the angle of each pair."""


def rotary_tables(
    spec: ModelSpec, positions: Int[Array, "batch seq"], segments: Array | None
) -> dict[Rope | None, Rotary | None]:
    """Compute the rotary tables of a model once per forward pass.

    Layers without rotary positions have the key None and the value None.
    """
    distinct = dict.fromkeys(block.rope for block in spec.blocks)
    needs_lengths = any(rope is not None and rope.kind in ("dynamic", "longrope") for rope in distinct)
    lengths = text_lengths(positions, segments) if needs_lengths else positions
    size = spec.head_dim
    return {rope: None if rope is None else rotary_embedding(rope, size, positions, lengths) for rope in distinct}


def text_lengths(positions: Int[Array, "batch seq"], segments: Array | None) -> Int[Array, "batch seq"]:
    """Return for each token the length of its text, as far as it is part of this call.

    Positions `[0, 1, 0, 1, 2]` of segments `[1, 1, 2, 2, 2]` give `[2, 2, 3, 3, 3]`.
    """
    if segments is None:
        return jnp.broadcast_to(jnp.max(positions, axis=1, keepdims=True), positions.shape) + 1
    is_last = jnp.concatenate([segments[:, 1:] != segments[:, :-1], jnp.ones_like(segments[:, :1], jnp.bool_)], axis=1)
    last = jnp.where(is_last, jnp.arange(segments.shape[1]), segments.shape[1])
    return jnp.take_along_axis(positions, jax.lax.cummin(last, axis=1, reverse=True), axis=1) + 1


def rotary_embedding(
    rope: Rope, head_dim: int, positions: Int[Array, "batch seq"], lengths: Int[Array, "batch seq"]
) -> Rotary:
    """Compute cosine and sine of the angle of each pair, in float32.

    Pair i of a head of 4 with base 100 turns by `position` for i = 0 and by `position / 10` for i = 1. `lengths`, the
    length of the text of each token, matters for `dynamic` and `longrope` only.
    """
    angle = positions.astype(jnp.float32)[:, :, None] * frequencies(rope, head_dim, lengths)
    factor = jnp.float32(rope.attention_factor)
    return jnp.cos(angle) * factor, jnp.sin(angle) * factor


def frequencies(rope: Rope, head_dim: int, lengths: Int[Array, "batch seq"]) -> Float[Array, "#batch #seq half"]:
    """Return the angle between neighbouring positions for each pair, in float32."""
    plain: NDArray[np.float64] = rope.theta ** (-np.arange(head_dim // 2, dtype=np.float64) * 2 / head_dim)
    match rope.kind:
        case "dynamic":
            ratio = jnp.maximum(lengths, rope.positions).astype(jnp.float32) / rope.positions
            base = rope.theta * (rope.factor * ratio - (rope.factor - 1)) ** (head_dim / (head_dim - 2))
            return base[:, :, None] ** _to_batch_shape(-np.arange(head_dim // 2) * 2 / head_dim)
        case "longrope":
            factors = (rope.short_factors, rope.long_factors)
            short, long = (_to_batch_shape(plain / np.asarray(each)) for each in factors)
            return jnp.where((lengths > rope.positions)[:, :, None], long, short)
        case "linear":
            plain = plain / rope.factor
        case "llama3":
            plain = llama3_frequencies(plain, rope)
        case "yarn":
            plain = yarn_frequencies(plain, rope, head_dim)
    return _to_batch_shape(plain)


def _to_batch_shape(values: NDArray[Any]) -> Float[Array, "1 1 half"]:
    """Return values `[half]` as a float32 array `[1 1 half]` that broadcasts over batch and positions."""
    return jnp.asarray(values[None, None, :], jnp.float32)


def llama3_frequencies(plain: NDArray[np.float64], rope: Rope) -> NDArray[np.float64]:
    """Return the frequencies of Llama 3.1.

    Pairs with up to `low_freq_factor` turns in the original context are divided by `factor`; those with at least
    `high_freq_factor` turns are kept.
    """
    turns = rope.positions * plain / (2 * math.pi)
    kept = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0)
    slowed: NDArray[np.float64] = (1 - kept) * plain / rope.factor + kept * plain
    return slowed


def yarn_frequencies(plain: NDArray[np.float64], rope: Rope, head_dim: int) -> NDArray[np.float64]:
    """Return the frequencies of YaRN (arXiv 2309.00071, section 3.2)."""

    def find_pair(turns: float) -> float:
        return head_dim * math.log(rope.positions / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    first, last = find_pair(rope.beta_fast), find_pair(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    slowed = np.clip((np.arange(head_dim // 2) - first) / (last - first or 0.001), 0.0, 1.0)
    mixed: NDArray[np.float64] = plain / rope.factor * slowed + plain * (1 - slowed)
    return mixed


def apply_rotary(
    x: Float[Array, "batch heads seq head_dim"], rotary: Rotary
) -> Float[Array, "batch heads seq head_dim"]:
    """Rotate each pair of a head by its angle (RoPE, arXiv 2104.09864, eq. 34).

    As in Hugging Face's files, a pair is element i of the first half and element i of the second half; the paper pairs
    neighbours. `[1, 0]` at position 1 becomes `[cos 1, sin 1]`. Computed in float32, returned in the dtype of `x`.
    """
    cos, sin = (table[:, None] for table in rotary)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
