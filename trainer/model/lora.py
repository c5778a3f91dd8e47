"""Low-rank adapters (LoRA, arXiv 2106.09685) on the projections of a decoder.

An adapter is two more parameters of a `Linear`: `lora_a` `[inputs rank]` and `lora_b` `[rank outputs]`, both float32
whatever the base is stored in. `model.py` chooses the projections; `peft.py` reads and writes adapter files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from trainer.model.products import matmul


@dataclass(frozen=True, kw_only=True)
class Lora:
    """The adapter of one projection."""

    rank: int
    """Inner width of the two matrices."""
    scale: float
    """Factor of their product: `alpha / rank`, or `alpha / sqrt(rank)` for rsLoRA (arXiv 2312.03732)."""
    dropout: float = 0.0
    """Share of the inputs that are set to 0 during training."""
    number: int = 0
    """Number of the adapter in the model; gives each adapter its own dropout."""


class Dropout(NamedTuple):
    """Randomness of the dropout in one layer."""

    key: Key[Array, ""]
    offset: Int[Array, ""] | int = 0
    """Number of adapters in earlier layers, if `Lora.number` counts within a layer."""


def init_lora_a(key: Key[Array, ""], inputs: int, rank: int) -> Float[Array, "inputs rank"]:
    """Return the first matrix of a new adapter: uniform within `1 / sqrt(inputs)`, as in PEFT."""
    bound = inputs**-0.5
    return jax.random.uniform(key, (inputs, rank), jnp.float32, minval=-bound, maxval=bound)


def lora_output(
    x: Float[Array, "tokens inputs"],
    first: Float[Array, "inputs rank"],
    second: Float[Array, "rank outputs"],
    lora: Lora,
    dropout: Dropout | None,
    *,
    deterministic: bool = False,
) -> Float[Array, "tokens outputs"]:
    """Return `scale · x · first · second` in the dtype of `x`.

    With `dropout`, a share of `x` is set to 0 and the rest scaled up.
    """
    if dropout is not None and lora.dropout > 0:
        keep = 1.0 - lora.dropout
        mask = jax.random.bernoulli(jax.random.fold_in(dropout.key, dropout.offset + lora.number), keep, x.shape)
        x = jnp.where(mask, x / keep, jnp.zeros_like(x))
    first, second = first.astype(x.dtype), second.astype(x.dtype)
    if not deterministic:
        return x @ first @ second * lora.scale
    # The gradient of `second` needs the transposed inner product. Without the barrier, a compiler computes that one
    # directly in the backward pass, with the other library (`products.py`).
    inner = jax.lax.optimization_barrier(matmul(x, first))
    return matmul(inner, second) * lora.scale


def lora_names(name: str) -> tuple[str, str]:
    """Return the names of a projection's two matrices: `layers.0.mlp.up.lora_a` and `.lora_b`."""
    return f"{name}.lora_a", f"{name}.lora_b"


def is_lora(name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return name.endswith((".lora_a", ".lora_b"))
