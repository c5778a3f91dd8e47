"""Attention on a TPU by JAX's splash kernel: scores exist only for a block of queries and a block of keys at a time.

Blocks that no query sees are skipped, those of the future and those before a window. The kernel comes with JAX
(jax.experimental.pallas.ops.tpu.splash_attention, after arXiv 2205.14135).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCKS = (512, 256, 128)
"""Lengths of a block, the best first; the kernel takes multiples of 128."""
PADDED_FRACTION = 1 / 8
"""At most so much of a sequence is added to fill its last block, unless the block is the smallest."""


def splash(
    query: Float[Array, "batch heads seq head_dim"],
    keys: Float[Array, "batch kv_heads seq head_dim"],
    values: Float[Array, "batch kv_heads seq head_dim"],
    segments: Int[Array, "batch seq"] | None,
    *,
    window: int | None,
    scale: float,
    softcap: float | None,
    interpreted: bool = False,
) -> Float[Array, "batch heads seq head_dim"]:
    """Return attention as `AttentionKernel.attend` describes it, for one device.

    Args:
        query: of each token.
        keys: of each token.
        values: of each token.
        segments: number of the text of each token. None: one text a row.
        window: how many tokens are seen. None: all.
        scale: of the scores.
        softcap: bends the scores. None: they are not bent.
        interpreted: run it on a CPU, slowly.
    """
    # With Pallas, which takes a second to import and which no run on another device needs.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, length = query.shape[1:3]
    block = block_of(length)
    added = -length % block
    # The kernel does not scale. Rounded once, as the scores of `attend` are not rounded at all.
    query = (query.astype(jnp.float32) * scale).astype(query.dtype)
    # What is added lies behind all tokens, and none of them sees it.
    query, keys, values = (jnp.pad(each, ((0, 0), (0, 0), (0, added), (0, 0))) for each in (query, keys, values))
    shape = (length + added, length + added)
    seen = masks.CausalMask(shape) if window is None or window >= length else masks.LocalMask(shape, (window - 1, 0), 0)
    kernel = kernels.make_splash_mha(
        masks.MultiHeadMask([seen] * heads),
        block_sizes=kernels.BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_q_dq=block,
            block_kv_dq=block,
        ),
        attn_logits_soft_cap=softcap,
        head_shards=1,
        q_seq_shards=1,
        interpret=interpreted,
    )
    if segments is None:
        read = jax.vmap(kernel)(query, keys, values)
    else:
        segments = jnp.pad(segments, ((0, 0), (0, added)))
        read = jax.vmap(kernel)(query, keys, values, kernels.SegmentIds(segments, segments))
    found: Array = read[:, :, :length]
    return found


def block_of(length: int) -> int:
    """Return how many tokens a block has: 512 of 8,192 or of 1,000, 256 of 700, 128 of 100."""
    return next((block for block in BLOCKS if -length % block <= length * PADDED_FRACTION), BLOCKS[-1])
