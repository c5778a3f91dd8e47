"""Matrix products whose gradients are plain products too: rows times columns, each axis in its usual place.

JAX derives the gradient of a second factor as a product that contracts first axes. A CPU compiler computes that form
with a different library than all other products, which sums in an order that depends on the processor's caches,
instructions and number of threads. With these functions every product of a step takes one path
(docs/decisions/determinism.md).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(
    first: Float[Array, "*batch rows inner"],
    second: Float[Array, "*batch inner columns"],
    dtype: DTypeLike | None = None,
) -> Float[Array, "*batch rows columns"]:
    """Return `first · second`: `[[1, 2]]` times `[[3], [4]]` is `[[11]]`.

    The sum is accumulated and returned in `dtype`, or in the dtype of the factors.
    """
    return _dot(first, second, dtype)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul_nt(
    first: Float[Array, "*batch rows inner"],
    second: Float[Array, "*batch columns inner"],
    dtype: DTypeLike | None = None,
) -> Float[Array, "*batch rows columns"]:
    """Return `first · secondᵀ`: `[[1, 2]]` times the row `[[3, 4]]` is `[[11]]`. Otherwise as `matmul`."""
    return _dot(first, _transpose(second), dtype)


def _backward(
    dtype: DTypeLike | None, factors: tuple[Array, Array], first: tuple[Array, Array], second: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Return the gradients of both factors, each a plain product of two matrices."""
    return _dot(*first, dtype).astype(factors[0].dtype), _dot(*second, dtype).astype(factors[1].dtype)


matmul.defvjp(
    lambda first, second, dtype: (matmul(first, second, dtype), (first, second)),
    lambda dtype, factors, gradient: _backward(
        dtype, factors, (gradient, _transpose(factors[1])), (_transpose(factors[0]), gradient)
    ),
)
matmul_nt.defvjp(
    lambda first, second, dtype: (matmul_nt(first, second, dtype), (first, second)),
    lambda dtype, factors, gradient: _backward(
        dtype, factors, (gradient, factors[1]), (_transpose(gradient), factors[0])
    ),
)


def _dot(first: Array, second: Array, dtype: DTypeLike | None) -> Array:
    batch = tuple(range(first.ndim - 2))
    axes = (((first.ndim - 1,), (second.ndim - 2,)), (batch, batch))
    return jax.lax.dot_general(first, second, axes, preferred_element_type=dtype)


def _transpose(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)
