"""Kernels stored in 4 or 8 bits: a frozen base takes an eighth or a quarter of the memory of float32.

`nf4` (arXiv 2305.14314) divides each output's inputs into blocks of 64, stores the largest magnitude of each block and,
for each number, the nearest of 16 values between -1 and 1. The codes are a `uint4` array looked up in a table of 16,
which compilers fuse into the matrix product; they do not fuse two codes packed into a byte. `int8` (arXiv 2208.07339)
has 255 even steps and one magnitude per output. Both equal what bitsandbytes makes of the same kernel; `load.py` reads
its files.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

Kind = Literal["nf4", "int8"]

BLOCK = 64
"""Inputs that share a magnitude in nf4."""

NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
"""Values of the codes: equally likely for normal numbers (appendix E of the paper)."""


def can_be_quantised(shape: tuple[int, ...], kind: Kind) -> bool:
    """Return whether a kernel `[inputs outputs]` can be stored so: nf4 needs whole blocks."""
    return kind == "int8" or shape[0] % BLOCK == 0


def quantise(kernel: Float[Array, "inputs outputs"], kind: Kind) -> tuple[Array, Float[Array, "blocks outputs"]]:
    """Return codes `[inputs outputs]` and the largest magnitude of each block.

    The nf4 block `[0.5, -0.25, 0, …]` has magnitude 0.5 and codes 15, 2 (-0.525 is nearest to -0.5) and 7.
    """
    inputs, outputs = kernel.shape
    block = BLOCK if kind == "nf4" else inputs
    blocks = kernel.astype(jnp.float32).reshape(inputs // block, block, outputs)
    scales = jnp.max(jnp.abs(blocks), axis=1)
    parts = blocks * (1.0 / jnp.maximum(scales, 1e-38))[:, None, :]
    if kind == "int8":
        return jnp.round(parts * 127.0).astype(jnp.int8).reshape(inputs, outputs), scales
    middles = jnp.asarray((NF4[1:] + NF4[:-1]) / 2)
    codes = jnp.searchsorted(middles, jnp.clip(parts, -1.0, 1.0), side="left", method="compare_all")
    return codes.astype(jnp.uint4).reshape(inputs, outputs), scales


quantise_on_device = jax.jit(quantise, static_argnames="kind")
"""`quantise`, compiled once for each shape."""


def dequantise(
    codes: Array, scales: Float[Array, "blocks outputs"], dtype: DTypeLike
) -> Float[Array, "inputs outputs"]:
    """Return the kernel; the dtype of the codes tells its kind."""
    inputs, outputs = codes.shape
    if codes.dtype == jnp.int8:
        return (codes.astype(jnp.float32) * (jnp.broadcast_to(scales, codes.shape) * (1 / 127))).astype(dtype)
    values = jnp.take(jnp.asarray(NF4), codes.astype(jnp.int32), axis=0, mode="clip")
    blocks = values.reshape(inputs // BLOCK, BLOCK, outputs)
    spread = jnp.broadcast_to(scales[:, None, :], blocks.shape)
    return (blocks * spread).reshape(inputs, outputs).astype(dtype)


def is_scales(name: str) -> bool:
    """Return whether a parameter holds the magnitudes of a quantised kernel; they do not count as parameters."""
    return name.endswith(".scales")


def is_quantised(name: str) -> bool:
    """Return whether a parameter is one of the two arrays of a quantised kernel."""
    return name.endswith((".codes", ".scales"))


def quantised_names(name: str) -> tuple[str, str]:
    """Return the names of the two arrays that replace the kernel of a projection."""
    return f"{name}.codes", f"{name}.scales"
