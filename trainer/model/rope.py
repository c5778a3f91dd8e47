"""Rotary positions: how far each pair of a head turns, for every way of stretching a context that `spec.py` names.

The formulas are those of transformers (modeling_rope_utils.py), so that a checkpoint means the same here. Frequencies
that do not depend on the text are worked out once, in float64, and enter the program as constants.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from trainer.model.spec import Dynamic, LinearScaling, Llama3, LongRope, Rope, Yarn


def angles(
    rope: Rope, head_dim: int, positions: Int[Array, "batch seq"], lengths: Int[Array, "batch seq"]
) -> tuple[Float[Array, "batch seq half"], Float[Array, "batch seq half"]]:
    """Return cosine and sine of each pair's angle, in float32.

    Pair i of a head of 4 with base 100 turns by `position` for i = 0 and by `position / 10` for i = 1.

    Args:
        rope: base and stretch.
        head_dim: width of a head.
        positions: of each token in its text.
        lengths: tokens of the text that each token belongs to, as far as they are known; without effect on most kinds.
    """
    angle = positions.astype(jnp.float32)[:, :, None] * frequencies(rope, head_dim, lengths)
    factor = jnp.float32(rope.stretch.attention_factor if isinstance(rope.stretch, Yarn | LongRope) else 1.0)
    return jnp.cos(angle) * factor, jnp.sin(angle) * factor


def frequencies(rope: Rope, head_dim: int, lengths: Int[Array, "batch seq"]) -> Float[Array, "#batch #seq half"]:
    """Return the angle by which each pair turns from one position to the next, in float32."""
    plain = rope.theta ** (-np.arange(head_dim // 2, dtype=np.float64) * 2 / head_dim)
    match rope.stretch:
        case Dynamic(factor=factor, positions=positions):
            ratio = jnp.maximum(lengths, positions).astype(jnp.float32) / positions
            base = rope.theta * (factor * ratio - (factor - 1)) ** (head_dim / (head_dim - 2))
            return base[:, :, None] ** constant(-np.arange(head_dim // 2) * 2 / head_dim)
        case LongRope(short_factors=short, long_factors=long, positions=positions):
            is_long = (lengths > positions)[:, :, None]
            return jnp.where(is_long, constant(plain / np.asarray(long)), constant(plain / np.asarray(short)))
        case LinearScaling(factor=factor):
            return constant(plain / factor)
        case Llama3() as stretch:
            return constant(llama3(plain, stretch))
        case Yarn() as stretch:
            return constant(yarn(plain, stretch, theta=rope.theta, head_dim=head_dim))
        case _:
            return constant(plain)


def constant(values: NDArray[Any]) -> Float[Array, "1 1 half"]:
    """Return one number for each pair, to be spread over rows and tokens."""
    return jnp.asarray(values[None, None, :], jnp.float32)


def llama3(plain: NDArray[np.float64], stretch: Llama3) -> NDArray[np.float64]:
    """Return the frequencies of Llama 3.1: the fewer turns a pair makes in the first context, the more it is slowed.

    Up to `low_freq_factor` turns it is divided by `factor`, from `high_freq_factor` turns on it is kept.
    """
    turns = stretch.positions * plain / (2 * math.pi)
    span = stretch.high_freq_factor - stretch.low_freq_factor
    kept = np.clip((turns - stretch.low_freq_factor) / span, 0.0, 1.0)
    slowed: NDArray[np.float64] = (1 - kept) * plain / stretch.factor + kept * plain
    return slowed


def yarn(plain: NDArray[np.float64], stretch: Yarn, *, theta: float, head_dim: int) -> NDArray[np.float64]:
    """Return the frequencies of YaRN (arXiv 2309.00071, section 3.2): kept up to one pair, slowed from another on."""

    def pair_of(turns: float) -> float:
        return head_dim * math.log(stretch.positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_of(stretch.beta_fast), pair_of(stretch.beta_slow)
    if stretch.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    span = last - first or 0.001
    slowed = np.clip((np.arange(head_dim // 2) - first) / span, 0.0, 1.0)
    mixed: NDArray[np.float64] = plain / stretch.factor * slowed + plain * (1 - slowed)
    return mixed


def rotate(
    x: Float[Array, "batch heads seq head_dim"],
    cos: Float[Array, "batch seq half"],
    sin: Float[Array, "batch seq half"],
) -> Float[Array, "batch heads seq head_dim"]:
    """Turn each pair of a head by its angle (RoPE, arXiv 2104.09864, eq. 34).

    As in Hugging Face's files, a pair is element i of the first half and element i of the second, where the paper takes
    neighbours. `[1, 0]` at position 1: `[cos 1, sin 1]`. Computed in float32, given back in the dtype of `x`.
    """
    cos, sin = cos[:, None], sin[:, None]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
