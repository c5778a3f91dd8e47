"""Causal self-attention: projections, rotary positions, grouped heads, the cache, and the transformer block.

`attend` computes all scores of a layer. `AttentionKernel` never stores the scores of a whole sequence, for training:
JAX's splash kernel on TPUs, or `blockwise`, a loop on any device (docs/decisions/memory.md). Every softmax is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from trainer.model.layers import Dropout, Dtypes, Linear, Mlp, Norm
from trainer.model.products import matmul, matmul_nt
from trainer.model.rope import Rotary, apply_rotary
from trainer.model.spec import BlockSpec, ModelSpec

AttentionKind = Literal["plain", "splash", "blockwise"]


class KeyValues(NamedTuple):
    """Keys and values of one layer for every slot of the cache, each `[batch kv_heads cache head_dim]`."""

    keys: Array
    values: Array


class Context(NamedTuple):
    """Positions, masks and randomness of a call."""

    positions: Int[Array, "batch seq"]  # of each token in its text
    segments: Int[Array, "batch seq"] | None = None
    """Number of the text of each token in packed rows, or None for one text per row. Texts do not see each other."""
    slot: Int[Array, ""] | None = None  # cache slot of the first token, or None without a cache
    padding: Int[Array, " batch"] | None = None  # unused slots at the start of each row of the cache
    dropout: Dropout | None = None  # of adapters during training
    rotary: Rotary | None = None  # cosine and sine for this layer, or None if queries and keys are not rotated
    window: Int[Array, ""] | None = None  # in a loop over different layers; otherwise `BlockSpec.window` applies


class Attention(nnx.Module):
    """Multi-head, grouped-query (arXiv 2305.13245) or multi-query attention, by the number of key heads."""

    def __init__(self, spec: ModelSpec, block: BlockSpec, *, out_std: float, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        linear = partial(Linear, dtypes=dtypes, rngs=rngs)
        norm = partial(Norm, spec.head_dim, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes)
        own: dict[str, Any] = {"std": spec.initializer_std, "bias": spec.attention_bias}
        self.block = block
        self.head_dim = spec.head_dim
        self.scale = spec.head_dim**-0.5 if spec.query_scale is None else spec.query_scale
        self.softcap = spec.attention_softcap
        self.query = linear(spec.embed, spec.heads * spec.head_dim, **own)
        self.key = linear(spec.embed, spec.kv_heads * spec.head_dim, **own)
        self.value = linear(spec.embed, spec.kv_heads * spec.head_dim, **own)
        self.out = linear(spec.heads * spec.head_dim, spec.embed, std=out_std, bias=spec.output_bias)
        self.query_norm = norm() if block.query_key_norm else None
        self.key_norm = norm() if block.query_key_norm else None
        self.kernel: AttentionKernel | None = None  # for whole sequences; `attend` also serves the cache

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: KeyValues | None = None
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues | None]:
        """Return the output for each token, and the cache with the keys and values of `x` at `context.slot`."""
        query, keys, values = (self._split(linear(x, context.dropout)) for linear in (self.query, self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None:
            query, keys = self.query_norm(query), self.key_norm(keys)
        if context.rotary is not None:
            query, keys = apply_rotary(query, context.rotary), apply_rotary(keys, context.rotary)
        if cache is not None:
            assert context.slot is not None, "a cache needs a slot"
            cache = KeyValues(
                jax.lax.dynamic_update_slice_in_dim(cache.keys, keys, context.slot, axis=2),
                jax.lax.dynamic_update_slice_in_dim(cache.values, values, context.slot, axis=2),
            )
            keys, values = cache
        window = self.block.window if context.window is None else context.window
        if self.kernel is None or cache is not None:
            mask = visible(context, window=window, keys=keys.shape[2])
            output = attend(query, keys, values, mask, scale=self.scale, softcap=self.softcap)
        else:
            options: dict[str, Any] = {"window": window, "scale": self.scale, "softcap": self.softcap}
            output = self.kernel.attend(query, keys, values, segments=context.segments, **options)
        batch, heads, seq, head_dim = output.shape
        merged = output.transpose(0, 2, 1, 3).reshape(batch, seq, heads * head_dim)
        return self.out(merged, context.dropout), cache

    def _split(self, x: Float[Array, "batch seq width"]) -> Float[Array, "batch heads seq head_dim"]:
        batch, seq, width = x.shape
        return x.reshape(batch, seq, width // self.head_dim, self.head_dim).transpose(0, 2, 1, 3)


class Layer(nnx.Module):
    """One block: `x + attention(norm(x))`, then `x + mlp(norm(x))`, each with an optional norm of the output."""

    def __init__(self, spec: ModelSpec, block: BlockSpec, *, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        norm = partial(Norm, spec.embed, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes)
        # GPT-2 (Radford et al. 2019, section 2.3) divides by the square root of the number of residual projections.
        std = spec.initializer_std / (2 * spec.layers) ** 0.5 if spec.scale_residual_init else spec.initializer_std
        self.attention_norm = norm()
        self.attention = Attention(spec, block, out_std=std, dtypes=dtypes, rngs=rngs)
        self.attention_post_norm = norm() if block.post_norms else None
        self.mlp_norm = norm()
        self.mlp = Mlp(spec, down_std=std, dtypes=dtypes, rngs=rngs)
        self.mlp_post_norm = norm() if block.post_norms else None
        self.adapter_offsets: tuple[int, ...] = ()  # in a stack, the number of adapters before each of its layers

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: KeyValues | None = None
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues | None]:
        """Return the residual stream after this block, and the extended cache."""
        output, cache = self.attention(self.attention_norm(x), context, cache)
        x = x + (output if self.attention_post_norm is None else self.attention_post_norm(output))
        output = self.mlp(self.mlp_norm(x), context.dropout)
        return x + (output if self.mlp_post_norm is None else self.mlp_post_norm(output)), cache


def visible(context: Context, *, window: int | Int[Array, ""] | None, keys: int) -> Bool[Array, "#batch seq keys"]:
    """Return which keys (last axis) each token attends to: itself and earlier ones in its window and text.

    With window 2 the third token attends to the second and itself. `keys` is the number of cache slots or, without a
    cache, of tokens.
    """
    tokens = jnp.arange(context.positions.shape[1], dtype=jnp.int32)[:, None]
    if context.slot is not None:
        tokens = tokens + context.slot
    slots = jnp.arange(keys, dtype=jnp.int32)[None, :]
    mask = slots <= tokens
    if not (window is None or (isinstance(window, int) and window >= keys)):
        mask = mask & (tokens - slots < window)
    mask = mask[None]
    if context.padding is not None:
        mask = mask & (slots[None] >= context.padding[:, None, None])
    if context.segments is not None:
        mask = mask & (context.segments[:, :, None] == context.segments[:, None, :])
    return mask


def attend(
    query: Float[Array, "batch heads seq head_dim"],
    keys: Float[Array, "batch kv_heads cache head_dim"],
    values: Float[Array, "batch kv_heads cache head_dim"],
    mask: Bool[Array, "#batch seq cache"],
    *,
    scale: float | None = None,
    softcap: float | None = None,
) -> Float[Array, "batch heads seq head_dim"]:
    """Return `softmax(q·kᵀ · scale) · v` over the keys in `mask` (arXiv 1706.03762, eq. 1).

    The default scale is `head_dim ** -0.5`. Consecutive query heads share a key head: with 4 heads and 2 key heads,
    heads 0 and 1 use key head 0. One query `[1]` with keys `[0], [ln 3]` and values `[0], [4]`: the weights are 1/4 and
    3/4, the result `[3]`. With a soft cap scores become `cap · tanh(score / cap)` (arXiv 2408.00118). A query without
    visible keys, which can only be padding, gets the plain mean, never a NaN.
    """
    batch, heads, seq, head_dim = query.shape
    kv_heads, cache = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    # Heads that share a key head become further queries: no key is repeated, and the products stay plain batched ones,
    # which compilers do best.
    queries = query.reshape(batch, kv_heads, group * seq, head_dim)
    scores = matmul_nt(queries, keys, jnp.float32)
    scores = scores * (head_dim**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    scores = scores.reshape(batch, kv_heads, group, seq, cache)
    # The lowest finite number: hidden keys get a weight of exactly 0, and unlike -inf it never makes a NaN.
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype).reshape(batch, kv_heads, group * seq, cache)
    return matmul(weights, values).reshape(query.shape)


@dataclass(frozen=True, kw_only=True)
class AttentionKernel:
    """An implementation of attention for training that never stores the scores of a whole sequence."""

    kind: Literal["splash", "blockwise"]
    mesh: Mesh | None = None  # devices that share the sequences, along its first axis; None for a single device
    interpreted: bool = False  # interpret the kernel, for tests on a CPU

    def attend(
        self,
        query: Float[Array, "batch heads seq head_dim"],
        keys: Float[Array, "batch kv_heads seq head_dim"],
        values: Float[Array, "batch kv_heads seq head_dim"],
        *,
        window: int | Int[Array, ""] | None,
        segments: Int[Array, "batch seq"] | None,
        scale: float,
        softcap: float | None,
    ) -> Float[Array, "batch heads seq head_dim"]:
        """Return the result of `attend` with the mask of `visible`.

        Queries, keys and values are of all tokens; a traced `window` is supported by `blockwise` only.
        """
        static, traced = (window, None) if window is None or isinstance(window, int) else (None, window)
        run: Callable[..., Array] = partial(_blockwise, window=static, scale=scale, softcap=softcap)
        if self.kind == "splash":
            assert traced is None, "the splash kernel needs a static window"
            run = partial(_splash, window=static, scale=scale, softcap=softcap, interpreted=self.interpreted)
        if self.mesh is not None and self.mesh.size > 1:
            rows = PartitionSpec(self.mesh.axis_names[0])
            specs = (rows, rows, rows, rows, PartitionSpec())
            # A kernel does not declare along which axes its result varies, so JAX cannot check it.
            run = jax.shard_map(run, mesh=self.mesh, in_specs=specs, out_specs=rows, check_vma=False)
        return run(query, keys, values, segments, traced)


def _splash(
    query: Float[Array, "batch heads seq head_dim"],
    keys: Float[Array, "batch kv_heads seq head_dim"],
    values: Float[Array, "batch kv_heads seq head_dim"],
    segments: Int[Array, "batch seq"] | None,
    traced_window: None,
    *,
    window: int | None,
    scale: float,
    softcap: float | None,
    interpreted: bool,
) -> Float[Array, "batch heads seq head_dim"]:
    """Compute attention by JAX's splash kernel (after arXiv 2205.14135), which skips blocks without visible keys."""
    # Imports Pallas, which takes a second and is needed on TPUs only.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, length = query.shape[1:3]
    # Multiples of 128, best long ones, of which at most an eighth is padding if that is possible.
    block = next((each for each in (512, 256, 128) if -length % each <= length / 8), 128)
    fields = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    sizes: dict[str, Any] = dict.fromkeys(fields, block)
    added = -length % block
    # The kernel does not scale scores.
    query = (query.astype(jnp.float32) * scale).astype(query.dtype)
    # Padding follows all tokens, so none of them attends to it.
    query, keys, values = (jnp.pad(each, ((0, 0), (0, 0), (0, added), (0, 0))) for each in (query, keys, values))
    shape = (length + added, length + added)
    mask = masks.CausalMask(shape) if window is None or window >= length else masks.LocalMask(shape, (window - 1, 0), 0)
    kernel = kernels.make_splash_mha(
        masks.MultiHeadMask([mask] * heads),
        block_sizes=kernels.BlockSizes(**sizes),
        attn_logits_soft_cap=softcap,
        head_shards=1,
        q_seq_shards=1,
        interpret=interpreted,
    )
    if segments is None:
        output = jax.vmap(kernel)(query, keys, values)
    else:
        segments = jnp.pad(segments, ((0, 0), (0, added)))
        output = jax.vmap(kernel)(query, keys, values, kernels.SegmentIds(segments, segments))
    result: Array = output[:, :, :length]
    return result


BLOCKWISE_NAME = "blockwise_forward"  # name of the call of `blockwise_forward` in a traced program
BLOCK = 512  # tokens of a block in `blockwise`; shorter sequences are one block


@dataclass(frozen=True, kw_only=True)
class BlockwisePlan:
    """Static parameters of `blockwise`."""

    block: int
    blocks: int
    window: int | None
    scale: float
    softcap: float | None

    def pairs(self) -> Int[np.ndarray, "pairs 2"]:
        """Return the pairs of a query block and a key block with visible keys, ordered by query block."""
        reach = self.blocks if self.window is None else -(-(self.window - 1) // self.block)
        rows = range(self.blocks)
        return np.array([(row, column) for row in rows for column in range(max(row - reach, 0), row + 1)], np.int32)


def _blockwise(
    query: Array, keys: Array, values: Array, segments: Array | None, traced_window: Array | None, **static: Any
) -> Float[Array, "batch heads seq head_dim"]:
    """Compute attention in a loop over pairs of query and key blocks, on any device; see `AttentionKernel.attend`.

    The softmax is accumulated over the key blocks (arXiv 1805.02867), and the gradient recomputes the scores (arXiv
    2205.14135, algorithms 1 and 4). Pairs without visible keys are skipped: nearly half of them. `static` are the other
    fields of `BlockwisePlan`; `traced_window` is a window that only the running program knows.
    """
    batch, heads, length, head_dim = query.shape
    kv_heads = keys.shape[1]
    block = min(BLOCK, length)
    blocks = -(-length // block)
    # Padding follows all tokens, so none of them attends to it.
    padding = ((0, 0), (0, 0), (0, blocks * block - length), (0, 0))
    plan = BlockwisePlan(block=block, blocks=blocks, **static)
    # As in `attend`, heads that share a key head become further queries.
    queries = jnp.pad(query, padding).reshape(batch, kv_heads, heads // kv_heads, blocks, block, head_dim)
    queries = queries.transpose(3, 0, 1, 2, 4, 5).reshape(blocks, batch, kv_heads, -1, head_dim)
    keys, values = (
        jnp.pad(each, padding).reshape(batch, kv_heads, blocks, block, head_dim).transpose(2, 0, 1, 3, 4)
        for each in (keys, values)
    )
    if segments is not None:
        segments = jnp.pad(segments, padding[:1] + padding[2:3]).reshape(batch, blocks, block).transpose(1, 0, 2)
    output = _attend(queries, keys, values, segments, traced_window, plan)
    output = output.reshape(blocks, batch, kv_heads, heads // kv_heads, block, head_dim).transpose(1, 2, 3, 0, 4, 5)
    return output.reshape(batch, heads, blocks * block, head_dim)[:, :, :length]


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attend(
    queries: Array, keys: Array, values: Array, segments: Array | None, traced_window: Array | None, plan: BlockwisePlan
) -> Array:
    output: Array = blockwise_forward(queries, keys, values, segments, traced_window, plan)[0]
    return output


@partial(jax.jit, static_argnums=5)
def blockwise_forward(
    queries: Array, keys: Array, values: Array, segments: Array | None, traced_window: Array | None, plan: BlockwisePlan
) -> tuple[Array, Array]:
    """Return the output of each query, and the logarithm of the sum of its exponentials.

    Queries are `[blocks batch kv_heads rows head_dim]`, keys and values `[blocks batch kv_heads block head_dim]`.
    """

    def pair(softmax: tuple[Array, Array, Array], places: Array) -> tuple[tuple[Array, Array, Array], None]:
        """Extend the running softmax of a query block: largest score, sum of exponentials, weighted values."""
        row, column = places[0], places[1]
        _, scores = _scores(queries[row], keys[column], places, segments, traced_window, plan)
        largests, totals, outputs = softmax
        before = largests[row]
        largest = jnp.maximum(before, jnp.max(scores, axis=-1, keepdims=True))
        # Until a row has a visible key, hidden keys have weight 1; the first visible key makes that 0.
        weights, decay = jnp.exp(scores - largest), jnp.exp(before - largest)
        added = matmul(weights.astype(values.dtype), values[column], jnp.float32)
        total = totals[row] * decay + jnp.sum(weights, axis=-1, keepdims=True)
        output = outputs[row] * decay + added
        return (largests.at[row].set(largest), totals.at[row].set(total), outputs.at[row].set(output)), None

    zeros = _zeros_like(queries)  # `[blocks batch kv_heads rows head_dim]`
    start = (zeros[..., :1] + jnp.finfo(jnp.float32).min, zeros[..., :1], zeros)
    (largest, total, output), _ = jax.lax.scan(pair, start, jnp.asarray(plan.pairs()))
    return (output / total).astype(queries.dtype), largest + jnp.log(total)


def _forward(*given: Any) -> tuple[Array, tuple[Any, ...]]:
    output, logsumexp = blockwise_forward(*given)
    return output, (*given[:-1], output, logsumexp)


@partial(jax.jit, static_argnums=0)
def blockwise_backward(plan: BlockwisePlan, saved: tuple[Any, ...], gradient: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of queries, keys and values."""
    queries, keys, values, segments, traced_window, output, logsumexp = saved
    inside = jnp.sum(gradient.astype(jnp.float32) * output.astype(jnp.float32), axis=-1, keepdims=True)

    def pair(sums: tuple[Array, ...], places: Array) -> tuple[tuple[Array, ...], None]:
        row, column = places[0], places[1]
        query, key, upstream = queries[row], keys[column], gradient[row]
        scores, visible_scores = _scores(query, key, places, segments, traced_window, plan)
        weights = jnp.exp(visible_scores - logsumexp[row])
        d_scores = weights * (matmul_nt(upstream, values[column], jnp.float32) - inside[row])
        if plan.softcap is not None:
            d_scores = d_scores * (1 - jnp.square(scores / plan.softcap))
        d_scores = (d_scores * plan.scale).astype(query.dtype)
        d_query, d_key, d_value = sums
        return (
            d_query.at[row].add(matmul(d_scores, key, jnp.float32)),
            d_key.at[column].add(matmul(jnp.swapaxes(d_scores, -1, -2), query, jnp.float32)),
            d_value.at[column].add(matmul(jnp.swapaxes(weights.astype(upstream.dtype), -1, -2), upstream, jnp.float32)),
        ), None

    start = tuple(_zeros_like(each) for each in (gradient, keys, values))
    (d_queries, d_keys, d_values), _ = jax.lax.scan(pair, start, jnp.asarray(plan.pairs()))
    return d_queries.astype(queries.dtype), d_keys.astype(keys.dtype), d_values.astype(values.dtype)


_attend.defvjp(_forward, lambda plan, saved, gradient: (*blockwise_backward(plan, saved, gradient), None, None))


def _zeros_like(x: Array) -> Array:
    """Return float32 zeros that depend on `x`: a GPU compiler allocates plain ones of all layers at the start."""
    return x.astype(jnp.float32) * 0


def _scores(
    query: Array, key: Array, places: Array, segments: Array | None, traced_window: Array | None, plan: BlockwisePlan
) -> tuple[Float[Array, "batch kv_heads rows block"], Float[Array, "batch kv_heads rows block"]]:
    """Return the scores of a pair of blocks, all, and with the lowest finite number for hidden keys."""
    scores = matmul_nt(query, key, jnp.float32) * plan.scale
    if plan.softcap is not None:
        scores = jnp.tanh(scores / plan.softcap) * plan.softcap
    tokens, others = (places[each] * plan.block + jnp.arange(plan.block, dtype=jnp.int32) for each in (0, 1))
    distance = tokens[:, None] - others[None, :]
    mask = distance >= 0
    for window in (plan.window, traced_window):
        mask = mask if window is None else mask & (distance < window)
    mask = mask[None]
    if segments is not None:
        mask = mask & (segments[places[0]][:, :, None] == segments[places[1]][:, None, :])
    batch, kv_heads, rows, block = scores.shape
    heads = scores.reshape(batch, kv_heads, rows // plan.block, plan.block, block)
    return scores, jnp.where(mask[:, None, None], heads, jnp.finfo(jnp.float32).min).reshape(scores.shape)
