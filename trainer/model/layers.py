"""Building blocks of a decoder: linear map, norm, token table, MLP; adapters, and kernels in few bits.

Each stores its parameters in `dtypes.params` and computes in `dtypes.compute`. An adapter is two more parameters of a
`Linear`, both float32 whatever the base is stored in: `lora_a` `[inputs rank]` and `lora_b` `[rank outputs]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key

from trainer.model.products import matmul, matmul_nt
from trainer.model.spec import Activation, ModelSpec, NormKind


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """Element types of a decoder."""

    params: DTypeLike  # of the stored parameters
    compute: DTypeLike  # of matrix products and activations
    deterministic: bool = False  # gradients of products are plain products too (`products.py`)


def draw_normal(rngs: nnx.Rngs, shape: tuple[int, ...], std: float, dtype: DTypeLike) -> Float[Array, ...]:
    """Draw normal numbers in float32 and round them: every dtype starts at the same model."""
    return (jax.random.normal(rngs.params(), shape, jnp.float32) * std).astype(dtype)


PRODUCT = "product"  # checkpoint name of the outputs of kernels, which `memory.remat: dots` saves


# Low-rank adapters (LoRA, arXiv 2106.09685)


@dataclass(frozen=True, kw_only=True)
class Lora:
    """The adapter of one projection."""

    rank: int  # inner width of the two matrices
    scale: float  # factor of their product: `alpha / rank`, or `alpha / sqrt(rank)` for rsLoRA (arXiv 2312.03732)
    dropout: float = 0.0  # share of the inputs that are set to 0 during training
    number: int = 0  # in the model; gives each adapter its own dropout


class Dropout(NamedTuple):
    """Randomness of the dropout in one layer."""

    key: Key[Array, ""]
    offset: Int[Array, ""] | int = 0  # number of adapters in earlier layers, if `Lora.number` counts within a layer


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


# Kernels in 4 or 8 bits

Kind = Literal["nf4", "int8"]
"""How a frozen kernel is stored, with the values that bitsandbytes gives it, in 1/8 or 1/4 of the bytes of float32.

`nf4` (arXiv 2305.14314) divides each output's inputs into blocks of 64, stores the largest magnitude of each block and,
for each number, the nearest of 16 values between -1 and 1. The codes are a `uint4` array looked up in a table of 16,
which compilers fuse into the matrix product; they do not fuse two codes packed into a byte. `int8` (arXiv 2208.07339)
has 255 even steps and one magnitude per output.
"""
BLOCK = 64  # inputs that share a magnitude in nf4, which needs whole blocks

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


quantise_on_device = jax.jit(quantise, static_argnames="kind")  # `quantise`, compiled once for each shape


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


def quantised_names(name: str) -> tuple[str, str]:
    """Return the names of the two arrays that replace the kernel of a projection."""
    return f"{name}.codes", f"{name}.scales"


class Linear(nnx.Module):
    """`x @ kernel + bias`, the kernel stored as `[inputs outputs]`.

    The kernel may be stored in 4 or 8 bits, and an adapter may add to it.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        self.compute_dtype = jnp.dtype(dtypes.compute)
        self.deterministic = dtypes.deterministic
        self.shape = (inputs, outputs)
        self.kernel: nnx.Param[Array] | None = nnx.data(nnx.Param(draw_normal(rngs, self.shape, std, dtypes.params)))
        self.codes: nnx.Param[Array] | None = nnx.data(None)
        self.scales: nnx.Param[Array] | None = nnx.data(None)
        self.bias = nnx.Param(jnp.zeros((outputs,), dtypes.params)) if bias else None
        self.lora: Lora | None = None
        self.lora_a: nnx.Param[Array] | None = nnx.data(None)
        self.lora_b: nnx.Param[Array] | None = nnx.data(None)

    def quantise(self, kind: Kind) -> None:
        """Replace the kernel, or a stack of kernels, by codes and magnitudes."""
        assert self.kernel is not None, "the kernel is quantized already"
        kernel = self.kernel[...]
        encode = partial(quantise, kind=kind)
        codes, scales = (jax.vmap(encode) if kernel.ndim > len(self.shape) else encode)(kernel)
        self.codes, self.scales, self.kernel = nnx.data(nnx.Param(codes)), nnx.data(nnx.Param(scales)), nnx.data(None)

    def __call__(
        self, x: Float[Array, "batch seq inputs"], dropout: Dropout | None = None
    ) -> Float[Array, "batch seq outputs"]:
        """Map `x`, in the compute dtype."""
        if self.codes is not None and self.scales is not None:
            kernel = dequantise(self.codes[...], self.scales[...], self.compute_dtype)
        else:
            assert self.kernel is not None, "a kernel is stored in one of two forms"
            kernel = self.kernel[...].astype(self.compute_dtype)
        batch, seq, inputs = x.shape
        # As one plain matrix product: CPU compilers make a slow kernel gradient of the three-axis one.
        flat = x.reshape(batch * seq, inputs)
        y: Array = matmul(flat, kernel) if self.deterministic else flat @ kernel
        if self.lora is not None and self.lora_a is not None and self.lora_b is not None:
            y = y + lora_output(
                flat, self.lora_a[...], self.lora_b[...], self.lora, dropout, deterministic=self.deterministic
            )
        y = checkpoint_name(y.reshape(batch, seq, kernel.shape[1]), PRODUCT)
        if self.bias is None:
            return y
        return y + jnp.broadcast_to(self.bias[...].astype(self.compute_dtype), y.shape)


class Norm(nnx.Module):
    """Layer norm (arXiv 1607.06450) or RMS norm (arXiv 1910.07467) over the last axis, computed in float32.

    `layer`: `(x - mean) / sqrt(variance + ε) · scale + bias`, the variance divided by n.
    `rms`: `x / sqrt(mean(x²) + ε) · scale`. `rms_one_plus`: the same with `1 + scale`, as Gemma stores its gain.
    For `x = [3, 4]`, ε = 0 and unit gain, `layer` gives `[-1, 1]` and the others `[0.849, 1.131]`.
    """

    def __init__(self, width: int, *, kind: NormKind, epsilon: float, dtypes: Dtypes) -> None:
        self.kind = kind
        self.epsilon = epsilon
        self.compute_dtype = jnp.dtype(dtypes.compute)
        start = jnp.zeros if kind == "rms_one_plus" else jnp.ones
        self.scale = nnx.Param(start((width,), dtypes.params))
        self.bias = nnx.Param(jnp.zeros((width,), dtypes.params)) if kind == "layer" else None

    def __call__(self, x: Float[Array, "*where width"]) -> Float[Array, "*where width"]:
        """Normalise `x`, in the compute dtype."""
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
    """One row per token or position, for lookup and for output scores."""

    def __init__(self, rows: int, embed: int, *, std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        self.compute_dtype = jnp.dtype(dtypes.compute)
        self.deterministic = dtypes.deterministic
        self.table = nnx.Param(draw_normal(rngs, (rows, embed), std, dtypes.params))

    def rows(self, ids: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        """Look up the rows of `ids`, in the compute dtype; ids must be below the number of rows."""
        return jnp.take(self.table[...], ids, axis=0).astype(self.compute_dtype)

    def scores(self, x: Float[Array, "*where embed"]) -> Float[Array, "*where rows"]:
        """Return the product of `x` with every row, in float32."""
        table = self.table[...].astype(self.compute_dtype)
        if not self.deterministic:
            return jnp.einsum("...E,VE->...V", x, table, preferred_element_type=jnp.float32)
        flat = matmul_nt(x.reshape(-1, x.shape[-1]), table, jnp.float32)
        return flat.reshape(*x.shape[:-1], table.shape[0])


class Mlp(nnx.Module):
    """`down(activation(up(x)))`, or with a gate `down(activation(gate(x)) · up(x))` (arXiv 2002.05202)."""

    def __init__(self, spec: ModelSpec, *, down_std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        linear = partial(Linear, bias=spec.mlp_bias, dtypes=dtypes, rngs=rngs)
        self.activation: Activation = spec.activation
        self.up = linear(spec.embed, spec.mlp, std=spec.initializer_std)
        self.gate = linear(spec.embed, spec.mlp, std=spec.initializer_std) if spec.gated_mlp else None
        self.down = linear(spec.mlp, spec.embed, std=down_std)
        self.chunk_tokens: int | None = None  # tokens computed together, or None for the whole microbatch

    def __call__(
        self, x: Float[Array, "batch seq embed"], dropout: Dropout | None = None
    ) -> Float[Array, "batch seq embed"]:
        """Return the contribution to the residual stream."""
        count = chunk_count(x.shape[0], x.shape[1], self.chunk_tokens)
        if count == 1:
            return self._compute(x, dropout)

        def compute_chunk(chunk: Array, number: Array) -> Array:
            if dropout is None:
                return self._compute(chunk, None)
            return self._compute(chunk, dropout._replace(key=jax.random.fold_in(dropout.key, number)))

        return map_chunks(compute_chunk, x, count)

    def _compute(self, x: Float[Array, "batch seq embed"], dropout: Dropout | None) -> Float[Array, "batch seq embed"]:
        up = self.up(x, dropout)
        if self.gate is None:
            return self.down(apply_activation(self.activation, up), dropout)
        return self.down(apply_activation(self.activation, self.gate(x, dropout)) * up, dropout)


def apply_activation(kind: Activation, x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Return GELU (arXiv 1606.08415, section 2, with its tanh form), SiLU (the same, section 4) or ReLU.

    At x = 1: gelu_tanh 0.8412, gelu 0.8413, silu 0.7311, relu 1.
    """
    if kind == "relu":
        return jax.nn.relu(x)
    if kind == "silu":
        return jax.nn.silu(x)
    return jax.nn.gelu(x, approximate=kind == "gelu_tanh")


KEEPS_NOTHING = jax.checkpoint_policies.nothing_saveable
"""JAX's default. Being explicit lets `loop/effective.py` distinguish chunks from rematerialised layers."""


def chunk_count(batch: int, seq: int, tokens: int | None) -> int:
    """Return the number of chunks of a microbatch `[batch seq]`; a chunk is at least one position of every sequence.

    4 sequences of 1,024 positions with at most 1,024 tokens per chunk: 4 chunks of 256 positions.
    """
    return 1 if tokens is None else -(-seq // max(1, tokens // batch))


def map_chunks(
    function: Callable[[Array, Array], Array], x: Float[Array, "batch seq embed"], count: int
) -> Float[Array, "batch seq embed"]:
    """Apply a tokenwise function of a chunk and its number to all positions, one chunk at a time.

    The inside of an MLP, `[tokens mlp]` several times over, then exists for one chunk only, and is recomputed chunk by
    chunk in the backward pass. Chunks run along `seq`, so that a batch split over devices stays split. Gradients of the
    weights are accumulated over the chunks in the dtype of the weights.
    """
    batch, seq, embed = x.shape

    # Without remat the loop would save the inside of every chunk for the backward pass.
    @partial(jax.checkpoint, prevent_cse=False, policy=KEEPS_NOTHING)
    def step(_: None, chunk: tuple[Array, Array]) -> tuple[None, Array]:
        return None, function(*chunk)

    chunks = split_chunks(x, -(-seq // count))
    _, outputs = jax.lax.scan(step, None, (chunks, jnp.arange(len(chunks))))
    return jnp.moveaxis(outputs, 0, 1).reshape(batch, -1, embed)[:, :seq]


def split_chunks(values: Array, chunk_positions: int) -> Array:
    """Split `[batch seq …]` into `[chunks batch chunk_positions …]`, padded with zeros."""
    batch, seq = values.shape[:2]
    chunks = -(-seq // chunk_positions)
    widths = [(0, 0), (0, chunks * chunk_positions - seq)] + [(0, 0)] * (values.ndim - 2)
    split = jnp.pad(values, widths).reshape(batch, chunks, chunk_positions, *values.shape[2:])
    return jnp.moveaxis(split, 1, 0)
