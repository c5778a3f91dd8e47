"""Numbers of an optimizer in 8 bits: dynamic quantisation in blocks (Dettmers et al., arXiv 2110.02861).

A block keeps its largest magnitude in float32, and of each number the nearest of 256 values of it. The values are those
of dynamic trees (arXiv 1511.04561): seven decades from 1e-7 to 1, the i-th cut into 2^i equal parts of which each gives
its middle, for either sign; and 0 and 1. Numbers that are never negative need no sign and have twice the parts.
torchao and bitsandbytes use the same values and the nearest of them; codes are counted as theirs.

A block is 256 inputs of an output, as of a kernel that torch stores with its inputs last, or the largest power of two
below that divides the inputs; of a table it is a row, one token's: a compiler need not move an array to see blocks so.
Arrays below 4,096 numbers, and those with one axis, stay float32, as there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, UInt8

from trainer.model.stacks import is_stack

BLOCK = 256
LEAST_BLOCK = 16
LEAST_NUMBERS = 4096
LEAST_SCALE = 1e-12
"""Magnitude of a block of zeros, as torchao has it."""

DECADES = 7


class CodedMoment(NamedTuple):
    """A moment of all parameters, by their names."""

    codes: dict[str, Any]
    """Of the parameter's shape: `uint8`, or float32 numbers where these are kept."""
    scales: dict[str, Any]
    """Magnitudes of the blocks of those that are codes, along the same axes."""


def no_moment(params: Mapping[str, Array]) -> CodedMoment:
    """Return the moment 0 of float32 parameters."""
    shapes = {name: scales_shape(name, value.shape) for name, value in params.items()}
    # The code of 0 differs between the moments; where a block's magnitude is 0, so is what any code stands for.
    codes = {name: jnp.zeros(params[name].shape, jnp.uint8 if shape else jnp.float32) for name, shape in shapes.items()}
    return CodedMoment(codes, {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes.items() if shape})


def scales_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a parameter's magnitudes, empty where its numbers stay float32.

    `[512 128]` has `[2 128]`; a table has one for each row; a stack is seen layer by layer.
    """
    own = shape[is_stack(name) :]
    if len(own) != 2 or own[0] * own[1] < LEAST_NUMBERS:
        return ()
    if name.endswith(".table"):
        return shape[:-1]
    block = BLOCK
    while own[0] % block:
        block //= 2
    return (*shape[:-2], own[0] // block, own[1]) if block >= LEAST_BLOCK else ()


def blocks_shape(shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which a parameter's blocks lie along axis 1: `[blocks block outputs]` or `[rows width]`."""
    if len(scales) < len(shape):
        return (math.prod(scales), shape[-1])
    return (math.prod(scales[:-1]), shape[-2] // scales[-2], shape[-1])


def scales_of(blocks: Float32[Array, ...]) -> Float32[Array, ...]:
    """Return the magnitudes of blocks, which lie along axis 1."""
    return jnp.maximum(jnp.max(jnp.abs(blocks), axis=1), LEAST_SCALE)


def codes_of(blocks: Float32[Array, ...], scales: Float32[Array, ...], *, signed: bool) -> UInt8[Array, ...]:
    """Return the codes of numbers in blocks.

    Args:
        blocks: up to their magnitudes.
        scales: from `scales_of`.
        signed: whether numbers may be negative.
    """
    return nearest_codes(blocks * jnp.expand_dims(1 / scales, 1), signed=signed)


def numbers_of(codes: UInt8[Array, ...], scales: Float32[Array, ...], *, signed: bool) -> Float32[Array, ...]:
    """Return the numbers that codes in blocks stand for."""
    return values_of(codes, signed=signed) * jnp.expand_dims(scales, 1)


def nearest_codes(parts: Float32[Array, ...], *, signed: bool) -> UInt8[Array, ...]:
    """Return the codes of the values nearest to numbers between −1 and 1; 0 is 127 with a sign and 0 without."""
    size, first = jnp.abs(parts), 1 if signed else 2
    middles = _middles(first)
    pieces, density = jnp.full_like(size, first), jnp.full_like(size, first * 10**6 / 0.9)
    for decade in range(1, DECADES):
        is_there = size >= middles[decade]
        pieces = jnp.where(is_there, first << decade, pieces)
        density = jnp.where(is_there, (first << decade) * 10 ** (6 - decade) / 0.9, density)
    place = pieces + jnp.clip(jnp.floor(size * density - pieces * (1 / 9)), 0, pieces - 1)
    place = jnp.where(size < middles[0], first - 1, place)
    place = jnp.where((parts if signed else size) >= middles[-1], first << DECADES, place)
    return (127 + jnp.sign(parts) * place if signed else place - 1).astype(jnp.uint8)


def values_of(codes: UInt8[Array, ...], *, signed: bool) -> Float32[Array, ...]:
    """Return the values of codes, computed: to look them up is slow on a TPU.

    The decade is the exponent of a code's place, and where in the decade it lies is the mantissa.
    """
    first = 1 if signed else 2
    counted = codes.astype(jnp.float32) + (-127 if signed else 1)
    place = jnp.abs(counted)
    bits = jax.lax.bitcast_convert_type(place + 0.5, jnp.int32)
    mantissa = jax.lax.bitcast_convert_type((bits & 0x007F_FFFF) | 0x3F80_0000, jnp.float32)
    power = jnp.full_like(place, 1e-6)
    for decade in range(1, DECADES):
        power = jnp.where(place >= first << decade, 10.0 ** (decade - 6), power)
    value = power * (0.1 + 0.9 * (mantissa - 1))
    value = jnp.where(place < first, 0, jnp.where(place >= first << DECADES, 1, value))
    return jnp.sign(counted) * value if signed else value


def _middles(first: int) -> list[float]:
    """Return the middle between 0 and the least value, those between decades, and that between the largest and 1."""
    halves = [0.45 / (first << decade) for decade in range(DECADES)]
    powers = [10.0 ** (decade - 6) for decade in range(DECADES)]
    least = [power * (0.1 + half) for power, half in zip(powers, halves, strict=True)] + [1.0]
    most = [0.0] + [power * (1 - half) for power, half in zip(powers, halves, strict=True)]
    return [(below + above) / 2 for below, above in zip(most, least, strict=True)]
