"""The small parts of a decoder: linear map, norm, token table, MLP.

Each holds its parameters in `dtypes.params` and computes in `dtypes.compute`. Attention has its own file; how the parts
are put together stands in `decoder.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from trainer.model.chunks import chunk_count, map_chunks
from trainer.model.lora import Dropout, Lora, lora_output
from trainer.model.products import product, product_with_rows
from trainer.model.quantised import Kind, dequantise, quantise
from trainer.model.spec import Activation, ModelSpec, NormKind


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """Element types of a decoder."""

    params: DTypeLike
    """Of the stored parameters."""

    compute: DTypeLike
    """Of matrix products and of what passes between layers."""

    one_path: bool = False
    """Whether the gradient of a product is a plain product too (`products.py`)."""


def normal(rngs: nnx.Rngs, shape: tuple[int, ...], std: float, dtype: DTypeLike) -> Float[Array, ...]:
    """Return normal numbers of mean 0, drawn in float32 and then rounded: every dtype starts at the same model."""
    return (jax.random.normal(rngs.params(), shape, jnp.float32) * std).astype(dtype)


PRODUCT = "product"
"""Names what a layer's kernels give, which `memory.remat: dots` keeps."""


class Linear(nnx.Module):
    """`x @ kernel + bias`, the kernel stored as `[inputs outputs]`.

    The kernel may be kept in 4 or 8 bits (`quantised.py`), and an adapter may add to it (`lora.py`).
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        self.compute_dtype = jnp.dtype(dtypes.compute)
        self.one_path = dtypes.one_path
        self.shape = (inputs, outputs)
        self.kernel: nnx.Param[Array] | None = nnx.data(nnx.Param(normal(rngs, self.shape, std, dtypes.params)))
        self.codes: nnx.Param[Array] | None = nnx.data(None)
        self.scales: nnx.Param[Array] | None = nnx.data(None)
        self.bias = nnx.Param(jnp.zeros((outputs,), dtypes.params)) if bias else None
        self.lora: Lora | None = None
        self.lora_a: nnx.Param[Array] | None = nnx.data(None)
        self.lora_b: nnx.Param[Array] | None = nnx.data(None)

    def add_lora(self, lora: Lora, first: Array, second: Array) -> None:
        """Give this projection an adapter with its two matrices; several where it stands for several layers."""
        self.lora = lora
        self.lora_a, self.lora_b = nnx.data(nnx.Param(first)), nnx.data(nnx.Param(second))

    def quantise(self, kind: Kind) -> None:
        """Keep the kernel, or those of several layers, as codes and magnitudes from now on."""
        assert self.kernel is not None, "a kernel is quantised once"
        kernel = self.kernel[...]
        coded = partial(quantise, kind=kind)
        codes, scales = (jax.vmap(coded) if kernel.ndim > len(self.shape) else coded)(kernel)
        self.codes, self.scales, self.kernel = nnx.data(nnx.Param(codes)), nnx.data(nnx.Param(scales)), nnx.data(None)

    def dense_kernel(self) -> Float[Array, "inputs outputs"]:
        """Return the kernel in the compute dtype."""
        if self.kernel is not None:
            return self.kernel[...].astype(self.compute_dtype)
        assert self.codes is not None, "a kernel is dense or quantised"
        assert self.scales is not None, "codes have magnitudes"
        return dequantise(self.codes[...], self.scales[...], self.compute_dtype)

    def __call__(
        self, x: Float[Array, "batch seq inputs"], dropout: Dropout | None = None
    ) -> Float[Array, "batch seq outputs"]:
        """Return the map of `x`, in the compute dtype."""
        kernel = self.dense_kernel()
        batch, seq, inputs = x.shape
        # As one plain matrix product: of the three-axis one a CPU's compiler makes a slow gradient for the kernel.
        flat = x.reshape(batch * seq, inputs)
        y: Array = product(flat, kernel) if self.one_path else flat @ kernel
        if self.lora is not None and self.lora_a is not None and self.lora_b is not None:
            y = y + lora_output(flat, self.lora_a[...], self.lora_b[...], self.lora, dropout, one_path=self.one_path)
        y = checkpoint_name(y.reshape(batch, seq, kernel.shape[1]), PRODUCT)
        if self.bias is None:
            return y
        return y + jnp.broadcast_to(self.bias[...].astype(self.compute_dtype), y.shape)


class Norm(nnx.Module):
    """Layer norm (arXiv 1607.06450) or RMS norm (arXiv 1910.07467) over the last axis, computed in float32.

    `layer`: `(x − mean) / sqrt(variance + ε) · scale + bias`, the variance divided by n.
    `rms`: `x / sqrt(mean(x²) + ε) · scale`. `rms_one_plus`: the same with `1 + scale`, as Gemma stores its gain.
    For `x = [3, 4]`, ε = 0 and unit gain: `layer` gives `[−1, 1]`, the others give `[0.849, 1.131]`.
    """

    def __init__(self, width: int, *, kind: NormKind, epsilon: float, dtypes: Dtypes) -> None:
        self.kind = kind
        self.epsilon = epsilon
        self.compute_dtype = jnp.dtype(dtypes.compute)
        start = jnp.zeros if kind == "rms_one_plus" else jnp.ones
        self.scale = nnx.Param(start((width,), dtypes.params))
        self.bias = nnx.Param(jnp.zeros((width,), dtypes.params)) if kind == "layer" else None

    def __call__(self, x: Float[Array, "*where width"]) -> Float[Array, "*where width"]:
        """Return `x` normalised, in the compute dtype."""
        y = x.astype(jnp.float32)
        if self.kind == "layer":
            y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.epsilon)
        scale = self.scale[...].astype(jnp.float32)
        if self.kind == "rms_one_plus":
            scale = scale + 1.0
        y = y * jnp.broadcast_to(scale, y.shape)
        if self.bias is not None:
            y = y + jnp.broadcast_to(self.bias[...].astype(jnp.float32), y.shape)
        return y.astype(self.compute_dtype)


class EmbeddingTable(nnx.Module):
    """One row per token or position: rows looked up on the way in, compared with on the way out."""

    def __init__(self, rows: int, embed: int, *, std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        self.compute_dtype = jnp.dtype(dtypes.compute)
        self.one_path = dtypes.one_path
        self.table = nnx.Param(normal(rngs, (rows, embed), std, dtypes.params))

    def rows(self, ids: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        """Return the rows of `ids`, in the compute dtype; ids are below the number of rows."""
        return jnp.take(self.table[...], ids, axis=0).astype(self.compute_dtype)

    def scores(self, x: Float[Array, "*where embed"]) -> Float[Array, "*where rows"]:
        """Return the product of `x` with every row, accumulated and given back in float32."""
        table = self.table[...].astype(self.compute_dtype)
        if not self.one_path:
            return jnp.einsum("...E,VE->...V", x, table, preferred_element_type=jnp.float32)
        flat = product_with_rows(x.reshape(-1, x.shape[-1]), table, jnp.float32)
        return flat.reshape(*x.shape[:-1], table.shape[0])


class Mlp(nnx.Module):
    """`down(activation(up(x)))`, or with a gate `down(activation(gate(x)) · up(x))` (arXiv 2002.05202)."""

    def __init__(self, spec: ModelSpec, *, down_std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        def linear(inputs: int, outputs: int, std: float) -> Linear:
            return Linear(inputs, outputs, bias=spec.mlp_bias, std=std, dtypes=dtypes, rngs=rngs)

        self.activation: Activation = spec.activation
        self.up = linear(spec.embed, spec.mlp, spec.initializer_std)
        self.gate = linear(spec.embed, spec.mlp, spec.initializer_std) if spec.gated_mlp else None
        self.down = linear(spec.mlp, spec.embed, down_std)
        self.chunk_tokens: int | None = None
        """Tokens that it computes at one time. None: all of a microbatch."""

    def __call__(
        self, x: Float[Array, "batch seq embed"], dropout: Dropout | None = None
    ) -> Float[Array, "batch seq embed"]:
        """Return what the MLP adds to the residual stream."""
        count = chunk_count(x.shape[0], x.shape[1], self.chunk_tokens)
        if count == 1:
            return self._of_chunk(x, dropout)

        def of_chunk(chunk: Array, number: Array) -> Array:
            if dropout is None:
                return self._of_chunk(chunk, None)
            return self._of_chunk(chunk, dropout._replace(key=jax.random.fold_in(dropout.key, number)))

        return map_chunks(of_chunk, x, count)

    def _of_chunk(self, x: Float[Array, "batch seq embed"], dropout: Dropout | None) -> Float[Array, "batch seq embed"]:
        up = self.up(x, dropout)
        if self.gate is None:
            return self.down(activate(self.activation, up), dropout)
        return self.down(activate(self.activation, self.gate(x, dropout)) * up, dropout)


def activate(kind: Activation, x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Return GELU (arXiv 1606.08415, section 2, with its tanh form), SiLU (the same, section 4) or ReLU.

    At x = 1: gelu_tanh 0.8412, gelu 0.8413, silu 0.7311, relu 1.
    """
    if kind == "relu":
        return jax.nn.relu(x)
    if kind == "silu":
        return jax.nn.silu(x)
    return jax.nn.gelu(x, approximate=kind == "gelu_tanh")
