"""Cross-entropy of the next token without `[batch seq vocab]` in memory.

Logits of a 256,000-token vocabulary are the largest tensor of a small model's step. Here they exist for one chunk of
positions at a time and are recomputed in the backward pass. Chunks run along `seq`, so a batch that is sharded over
devices stays sharded.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from trainer.model.layers import split_chunks

LogitsOf = Callable[[Float[Array, "batch seq embed"]], Float[Array, "batch seq vocab"]]


def next_token_targets(
    tokens: Int32[Array, "batch seq"], loss_mask: Bool[Array, "batch seq"]
) -> tuple[Int32[Array, "batch seq"], Bool[Array, "batch seq"]]:
    """Return the target of each position, and where it counts.

    Position t predicts token t + 1; the last position predicts nothing. For tokens `[5, 6, 7]` and mask `[0, 1, 1]`
    the targets are `[6, 7, 0]` and the target mask `[1, 1, 0]`.
    """
    nothing = jnp.zeros_like(tokens[:, :1])
    targets = jnp.concatenate([tokens[:, 1:], nothing], axis=1)
    mask = jnp.concatenate([loss_mask[:, 1:], nothing.astype(jnp.bool_)], axis=1)
    return targets, mask


def cross_entropies(
    logits: Float[Array, "batch seq vocab"], targets: Int32[Array, "batch seq"], mask: Bool[Array, "batch seq"]
) -> Float[Array, "batch seq"]:
    """Return `logsumexp(logits) − logits[target]` where the mask is true, else 0, in nats.

    For one position with the logits `[0, 0]` it is ln 2 = 0.693. Computed in float32 whatever the logits' type.
    """
    logits = logits.astype(jnp.float32)
    log_total = jax.nn.logsumexp(logits, axis=-1)
    target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.where(mask, log_total - target_logits, jnp.float32(0))


def summed_cross_entropy(
    logits: Float[Array, "batch seq vocab"], targets: Int32[Array, "batch seq"], mask: Bool[Array, "batch seq"]
) -> Float[Array, ""]:
    """Return the sum of `cross_entropies` over all positions."""
    return jnp.sum(cross_entropies(logits, targets, mask))


def is_chunked(seq: int, chunk_positions: int | None) -> bool:
    """Return whether the logits of a sequence are computed in several chunks, with rematerialisation."""
    return chunk_positions is not None and chunk_positions < seq


def sum_chunks(
    summed: Callable[..., Array],
    hidden: Float[Array, "batch seq embed"],
    targets: Int32[Array, "batch seq"],
    mask: Bool[Array, "batch seq"],
    logits_of: LogitsOf,
    chunk_positions: int | None,
) -> Array:
    """Return `summed(logits_of(hidden), targets, mask)`, computing logits for `chunk_positions` positions at a time.

    Equal to a single chunk, or None, up to the order of additions.
    """
    if chunk_positions is None or not is_chunked(hidden.shape[1], chunk_positions):
        return summed(logits_of(hidden), targets, mask)

    # Without checkpointing the scan would keep the logits of every chunk for the backward pass.
    @jax.checkpoint
    def add_chunk(total: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, None]:
        hidden_chunk, targets_chunk, mask_chunk = chunk
        return total + summed(logits_of(hidden_chunk), targets_chunk, mask_chunk), None

    chunked = tuple(split_chunks(values, chunk_positions) for values in (hidden, targets, mask))
    shape = jax.eval_shape(lambda *chunk: summed(logits_of(chunk[0]), *chunk[1:]), *(each[0] for each in chunked))
    total: Array
    total, _ = jax.lax.scan(add_chunk, jnp.zeros(shape.shape, jnp.float32), chunked)
    return total


def token_log_probs(
    hidden: Float[Array, "batch seq embed"],
    targets: Int32[Array, "batch seq"],
    mask: Bool[Array, "batch seq"],
    logits_of: LogitsOf,
    chunk_positions: int | None,
) -> Float[Array, "batch seq"]:
    """Return the log-probability of each target where the mask is true, else 0, in nats; chunks as in `sum_chunks`."""
    batch, seq, _ = hidden.shape
    if chunk_positions is None or not is_chunked(seq, chunk_positions):
        return -cross_entropies(logits_of(hidden), targets, mask)

    @jax.checkpoint
    def chunk_log_probs(chunk: tuple[Array, Array, Array]) -> Array:
        hidden_chunk, targets_chunk, mask_chunk = chunk
        return -cross_entropies(logits_of(hidden_chunk), targets_chunk, mask_chunk)

    found = jax.lax.map(
        chunk_log_probs, tuple(split_chunks(values, chunk_positions) for values in (hidden, targets, mask))
    )
    return jnp.moveaxis(found, 0, 1).reshape(batch, -1)[:, :seq]
