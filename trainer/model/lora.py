"""Low-rank adapters (LoRA, arXiv 2106.09685) on the projections of a decoder: which there are, and what each adds.

An adapter is two further parameters of a `Linear`: `lora_a` `[inputs rank]` and `lora_b` `[rank outputs]`, both float32
whatever the rest is held in. Which parameters learn is a method's question (`trainer/methods`); files of adapters are
in `adapters/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from trainer.model.products import product


@dataclass(frozen=True, kw_only=True)
class Lora:
    """The adapter of one projection."""

    rank: int
    """Width between the two matrices."""

    scale: float
    """Their product is multiplied by it: `alpha / rank`, or `alpha / sqrt(rank)` for rsLoRA (arXiv 2312.03732)."""

    dropout: float = 0.0
    """Share of its inputs that are set to 0 while it is trained."""

    number: int = 0
    """Which of the model's adapters it is: each drops inputs of its own."""


class Dropout(NamedTuple):
    """What decides which inputs a layer's adapters drop."""

    key: Key[Array, ""]

    before: Int[Array, ""] | int = 0
    """Adapters of earlier layers, where `Lora.number` counts those of one layer."""


def first_matrix(key: Key[Array, ""], inputs: int, rank: int) -> Float[Array, "inputs rank"]:
    """Return the first matrix of a new adapter: uniform within `1 / sqrt(inputs)`, as PEFT draws it."""
    bound = inputs**-0.5
    return jax.random.uniform(key, (inputs, rank), jnp.float32, minval=-bound, maxval=bound)


def lora_output(
    x: Float[Array, "tokens inputs"],
    first: Float[Array, "inputs rank"],
    second: Float[Array, "rank outputs"],
    lora: Lora,
    dropout: Dropout | None,
    *,
    one_path: bool = False,
) -> Float[Array, "tokens outputs"]:
    """Return `scale · x · first · second`, in the dtype of `x`.

    With `dropout` a share of `x` is set to 0 and the rest made larger by as much; one key never drops twice alike.
    """
    if dropout is not None and lora.dropout > 0:
        keep = 1.0 - lora.dropout
        kept = jax.random.bernoulli(jax.random.fold_in(dropout.key, dropout.before + lora.number), keep, x.shape)
        x = jnp.where(kept, x / keep, jnp.zeros_like(x))
    first, second = first.astype(x.dtype), second.astype(x.dtype)
    if not one_path:
        return x @ first @ second * lora.scale
    # The gradient of `second` multiplies by their product turned, and a compiler that sees both computes it turned at
    # once, where it computes it again for the way back: by the other library (`products.py`).
    inner = jax.lax.optimization_barrier(product(x, first))
    return product(inner, second) * lora.scale


def lora_names(name: str) -> tuple[str, str]:
    """Return the names of a projection's two matrices: `layers.0.mlp.up.lora_a` and `.lora_b`."""
    return f"{name}.lora_a", f"{name}.lora_b"


def is_lora(name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return name.endswith((".lora_a", ".lora_b"))
