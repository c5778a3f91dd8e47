"""What did not give an answer: other weights, and texts that were edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from trainer.model.params import Params
from trainer.model.quantised import can_be_quantised, dequantise, quantise


def noisy(params: Params, share: float) -> Params:
    """Return parameters, each changed by a normal number whose deviation is a share of its array's own."""
    keys = jax.random.split(jax.random.key(0), len(params))
    return {
        name: value + share * jnp.std(value) * jax.random.normal(key, value.shape, value.dtype)
        for key, (name, value) in zip(keys, params.items(), strict=True)
    }


def quantised(params: Params, kind: Any) -> Params:
    """Return parameters whose kernels were kept in few bits and are whole again."""
    return {name: coarse(value, kind) if name.endswith(".kernel") else value for name, value in params.items()}


def coarse(kernel: Any, kind: Any) -> Any:
    """Return a kernel as few bits keep it."""
    if not can_be_quantised(kernel.shape, kind):
        return kernel
    return dequantise(*quantise(kernel, kind), kernel.dtype)


def edited(tokens: Sequence[int], vocab: int, *, at: int) -> list[int]:
    """Return tokens with another one at a place, the end token left alone."""
    at = min(at, len(tokens) - 1)
    return [*tokens[:at], 2 + (tokens[at] + 7) % (vocab - 2), *tokens[at + 1 :]]
