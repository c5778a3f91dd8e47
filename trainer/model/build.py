"""A decoder from its spec: with random parameters, or with shapes only.

Reading parameters from files is in `loading.py`.
"""

from __future__ import annotations

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from trainer.model.decoder import Decoder, Remat
from trainer.model.layers import Dtypes
from trainer.model.spec import ModelSpec


def build(
    spec: ModelSpec, *, key: Key[Array, ""], params_dtype: DTypeLike, compute_dtype: DTypeLike, remat: Remat
) -> Decoder:
    """Return a decoder with random parameters, equal for equal keys.

    Matrices and tables are normal with deviation `spec.initializer_std`, biases 0, norms the identity. GPT-2 also
    starts its residual projections smaller (see `decoder.residual_std`). Under `jax.jit` with `out_shardings` each
    device makes its own part.

    Args:
        spec: what to build.
        key: a typed key, `jax.random.key(seed)`.
        params_dtype: element type of the stored parameters; drawn in float32 and rounded to it.
        compute_dtype: element type of matrix products.
        remat: `layer` keeps only each layer's input for the backward pass.
    """
    dtypes = Dtypes(params=params_dtype, compute=compute_dtype)
    return Decoder(spec, dtypes=dtypes, remat=remat, rngs=nnx.Rngs(params=key))


def abstract(spec: ModelSpec, *, params_dtype: DTypeLike, compute_dtype: DTypeLike, remat: Remat) -> Decoder:
    """Return the decoder with shapes and dtypes in place of arrays; takes no memory for parameters."""

    def shapes_only() -> Decoder:
        return build(spec, key=jax.random.key(0), params_dtype=params_dtype, compute_dtype=compute_dtype, remat=remat)

    decoder: Decoder = nnx.eval_shape(shapes_only)
    return decoder
