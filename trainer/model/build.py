"""A decoder from its spec: with random parameters, or with shapes only.

Reading parameters from files is in `loading.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from trainer.model.decoder import Decoder, Remat
from trainer.model.layers import Dtypes, Linear
from trainer.model.lora import Lora
from trainer.model.quantised import Kind
from trainer.model.spec import ModelSpec


def build(
    spec: ModelSpec,
    *,
    key: Key[Array, ""],
    params_dtype: DTypeLike,
    compute_dtype: DTypeLike,
    remat: Remat,
    one_path: bool = False,
    adapters: Mapping[str, Lora] | None = None,
    quantised: Mapping[str, Kind] | None = None,
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
        one_path: whether the gradient of a product is a plain product too (`products.py`).
        adapters: by the name of the projection that gets one, such as `layers.0.attention.query` (`projections`).
        quantised: by the name of the projection whose kernel is kept in few bits.
    """
    dtypes = Dtypes(params=params_dtype, compute=compute_dtype, one_path=one_path)
    decoder = Decoder(spec, dtypes=dtypes, remat=remat, rngs=nnx.Rngs(params=key))
    # Apart from the model's own draws: a model starts the same with adapters and without.
    rngs = nnx.Rngs(params=jax.random.fold_in(key, 1))
    linears = projections(decoder)
    for name, kind in sorted((quantised or {}).items()):
        linears[name].quantise(kind)
    for name, lora in sorted((adapters or {}).items()):
        linears[name].add_lora(lora, rngs)
    return decoder


def projections(decoder: Decoder) -> dict[str, Linear]:
    """Return every projection of every layer by name: `layers.0.attention.query` to `layers.3.mlp.down`."""
    nodes = {".".join(map(str, path)): node for path, node in nnx.iter_graph(decoder)}
    return {name: node for name, node in sorted(nodes.items()) if isinstance(node, Linear)}


def without_adapters(decoder: Decoder) -> Decoder:
    """Return the decoder with its adapters switched off: what it was before they were added."""
    for linear in projections(decoder).values():
        linear.lora = None
    return decoder


def abstract(
    spec: ModelSpec,
    *,
    params_dtype: DTypeLike,
    compute_dtype: DTypeLike,
    remat: Remat,
    one_path: bool = False,
    adapters: Mapping[str, Lora] | None = None,
    quantised: Mapping[str, Kind] | None = None,
) -> Decoder:
    """Return the decoder with shapes and dtypes in place of arrays; takes no memory for parameters."""

    def shapes_only() -> Decoder:
        return build(
            spec,
            key=jax.random.key(0),
            params_dtype=params_dtype,
            compute_dtype=compute_dtype,
            remat=remat,
            one_path=one_path,
            adapters=adapters,
            quantised=quantised,
        )

    decoder: Decoder = nnx.eval_shape(shapes_only)
    return decoder
