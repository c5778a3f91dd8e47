"""Matrix products whose gradients are plain products too: rows times columns, each axis in its usual place.

JAX derives the gradient of a second factor as a product that contracts first axes. A CPU's compiler gives that to
another library than all other products, one that adds in an order which depends on the processor's caches, its
instructions and the number of threads. Written out here, every product of a step takes one path
(docs/decisions/processors.md).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(
    first: Float[Array, "*batch rows inner"],
    second: Float[Array, "*batch inner columns"],
    dtype: DTypeLike | None = None,
) -> Float[Array, "*batch rows columns"]:
    """Return `first · second`: `[[1, 2]]` times `[[3], [4]]` is `[[11]]`.

    Args:
        first: the left factor.
        second: the right one, with the same axes before its last two.
        dtype: in which it is added up and given back. None: that of the factors.
    """
    return _plain(first, second, dtype)


def _forward(first: Array, second: Array, dtype: DTypeLike | None) -> tuple[Array, tuple[Array, Array]]:
    return product(first, second, dtype), (first, second)


def _backward(dtype: DTypeLike | None, factors: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    first, second = factors
    of_first, of_second = _plain(gradient, _turn(second), dtype), _plain(_turn(first), gradient, dtype)
    return of_first.astype(first.dtype), of_second.astype(second.dtype)


product.defvjp(_forward, _backward)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def product_with_rows(
    first: Float[Array, "*batch rows inner"],
    second: Float[Array, "*batch columns inner"],
    dtype: DTypeLike | None = None,
) -> Float[Array, "*batch rows columns"]:
    """Return `first · secondᵀ`: `[[1, 2]]` times the row `[[3, 4]]` is `[[11]]`. As `product` otherwise."""
    return _plain(first, _turn(second), dtype)


def _forward_with_rows(first: Array, second: Array, dtype: DTypeLike | None) -> tuple[Array, tuple[Array, Array]]:
    return product_with_rows(first, second, dtype), (first, second)


def _backward_with_rows(dtype: DTypeLike | None, factors: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    first, second = factors
    of_first, of_second = _plain(gradient, second, dtype), _plain(_turn(gradient), first, dtype)
    return of_first.astype(first.dtype), of_second.astype(second.dtype)


product_with_rows.defvjp(_forward_with_rows, _backward_with_rows)


def _plain(first: Array, second: Array, dtype: DTypeLike | None) -> Array:
    batch = tuple(range(first.ndim - 2))
    axes = (((first.ndim - 1,), (second.ndim - 2,)), (batch, batch))
    return jax.lax.dot_general(first, second, axes, preferred_element_type=dtype)


def _turn(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)
