"""Stochastic rounding to bfloat16, without which small updates of bfloat16 parameters are lost.

bfloat16 keeps 8 bits of a number, so nearest rounding throws away any update below about 1/256 of the parameter.
Rounding up with a probability equal to the part cut off keeps the expected value (arXiv 2502.20566).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Float32, PRNGKeyArray, UInt32


def stochastic_round(values: Float32[Array, ...], key: PRNGKeyArray) -> BFloat16[Array, ...]:
    """Return values in bfloat16, each rounded up or down at random so that its mean is kept.

    A bfloat16 is the upper half of a float32. Adding a uniform 16-bit number to the lower half carries into the upper
    half with probability (lower half) / 2¹⁶; cutting the lower half off then leaves one of the two neighbours.
    A value that bfloat16 holds exactly is unchanged. Infinities and NaN have no neighbours and pass through as they
    are.
    """
    return round_by_noise(values, jax.random.bits(key, values.shape, jnp.uint16).astype(jnp.uint32))


def round_by_noise(values: Float32[Array, ...], noise: UInt32[Array, ...]) -> BFloat16[Array, ...]:
    """Return values in bfloat16, as `stochastic_round` does, by a number below 2¹⁶ for each."""
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    rounded = jax.lax.bitcast_convert_type((bits + noise) & jnp.uint32(0xFFFF0000), jnp.float32)
    return jnp.where(jnp.isfinite(values), rounded, values).astype(jnp.bfloat16)


def round_like(values: Float32[Array, ...], stored: Array, key: PRNGKeyArray) -> Array:
    """Return `values` in the type of `stored`: stochastically rounded for bfloat16, else unchanged in float32."""
    return stochastic_round(values, key) if stored.dtype == jnp.bfloat16 else values
