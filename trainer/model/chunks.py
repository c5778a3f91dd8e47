"""A microbatch in chunks of the sequence, for what would be too large for all of it at once.

What the MLP of a layer keeps between its products is `[tokens mlp]` several times over, the most of a layer's inside
where attention keeps no scores. In chunks it exists for some positions of every sequence at a time, and is computed
again chunk by chunk on the way back. Chunks run along `seq`, so that a batch split over devices stays split. Gradients
of the weights are added up over the chunks in the type that the weights are stored in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

OfChunk = Callable[[Float[Array, "batch positions embed"], Int[Array, ""]], Float[Array, "batch positions embed"]]
"""What is computed of a chunk and its number, for every token by itself."""

KEEPS_NOTHING = jax.checkpoint_policies.nothing_saveable
"""JAX's default, stated: by it `loop/effective.py` sets chunks apart from layers that are computed again."""


def chunk_count(batch: int, seq: int, tokens: int | None) -> int:
    """Return the number of chunks of a microbatch; a chunk is some positions of every sequence, one at least.

    For 4 sequences of 1,024 and 1,024 tokens: 4 chunks of 256 positions.

    Args:
        batch: sequences.
        seq: positions of each.
        tokens: of a chunk, at most. None: one chunk.
    """
    return 1 if tokens is None else -(-seq // max(1, tokens // batch))


def map_chunks(of_chunk: OfChunk, x: Float[Array, "batch seq embed"], count: int) -> Float[Array, "batch seq embed"]:
    """Return what `of_chunk` gives for all positions, computed in so many chunks."""
    batch, seq, embed = x.shape

    # remat: without it the loop would keep the inside of every chunk for the backward pass, which is all of it.
    @partial(jax.checkpoint, prevent_cse=False, policy=KEEPS_NOTHING)
    def one(_: None, chunk: tuple[Array, Array]) -> tuple[None, Array]:
        return None, of_chunk(*chunk)

    chunks = in_chunks(x, -(-seq // count))
    _, found = jax.lax.scan(one, None, (chunks, jnp.arange(len(chunks))))
    return jnp.moveaxis(found, 0, 1).reshape(batch, -1, embed)[:, :seq]


def in_chunks(values: Array, chunk_positions: int) -> Array:
    """Return `[chunks batch chunk_positions …]` of `[batch seq …]`; what is added at the end is 0, or false."""
    batch, seq = values.shape[:2]
    chunks = -(-seq // chunk_positions)
    widths = [(0, 0), (0, chunks * chunk_positions - seq)] + [(0, 0)] * (values.ndim - 2)
    split = jnp.pad(values, widths).reshape(batch, chunks, chunk_positions, *values.shape[2:])
    return jnp.moveaxis(split, 1, 0)
