"""Which sequences each step learns from: a pure function of seed and step, so that resuming needs no saved state."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from jaxtyping import Int


def rows_of_step(step: int, *, rows: int, batch_size: int, seed: int, shuffle: bool) -> Int[np.ndarray, " batch"]:
    """Return the rows that optimizer step `step` (counted from 0) learns from.

    The data is read as an endless stream of passes, each pass a permutation of all rows drawn from (seed, pass); step
    k takes positions k·batch to (k+1)·batch of that stream. Every row is thus used once before any is used twice.
    With 5 rows in file order and batch 2, steps 0, 1 and 2 take [0, 1], [2, 3] and [4, 0]. Where rows are packed, the
    sequences are what is permuted.

    Args:
        step: 0 or more.
        rows: rows in the data, 1 or more.
        batch_size: sequences per optimizer step.
        seed: decides the permutations.
        shuffle: if false, every pass is in file order.

    Returns:
        Row numbers, 0 to rows − 1, shape `[batch]`.
    """
    order = partial(order_of_pass, rows=rows, seed=seed, shuffle=shuffle)
    return rows_in(order, step, rows=rows, batch_size=batch_size)


def rows_in(
    order: Callable[[int], Int[np.ndarray, " rows"]], step: int, *, rows: int, batch_size: int
) -> Int[np.ndarray, " batch"]:
    """Return the rows of a step in the stream of passes of which `order` gives each by its number."""
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    passes, offsets = np.divmod(positions, rows)
    orders = {number: order(int(number)) for number in np.unique(passes)}
    return np.array([orders[number][offset] for number, offset in zip(passes, offsets, strict=True)])


@lru_cache(maxsize=2)  # a step may end one pass and begin the next
def order_of_pass(number: int, *, rows: int, seed: int, shuffle: bool) -> Int[np.ndarray, " rows"]:
    """Return the order of one pass over the data, not to be written to.

    Philox is counter-based, so (seed, pass) alone decides it.
    """
    if not shuffle:
        order = np.arange(rows)
    else:
        order = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64))).permutation(rows)
    order.setflags(write=False)
    return order
