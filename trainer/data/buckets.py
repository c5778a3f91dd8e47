"""Lengths to which sequences are padded, and batches of sequences of one length.

A program is compiled for one shape, so a short row costs as much as the longest: rows of 37 tokens in sequences of 512
leave 93 % of the work to padding. With a few lengths instead of one, a step takes the smallest that holds its rows;
with `data.shuffle` its rows are chosen so that they are about equally long.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from schemas.problems import Problem, problem_of
from trainer.config.tree import Config

SHORTEST = 8
"""Tokens of the smallest length; all but the largest are multiples of it."""

GROUPS = 0x6275_636B
"""Sets the order of a pass's batches apart from that of its rows."""


def lengths_of(max_length: int, buckets: int) -> tuple[int, ...]:
    """Return the lengths, ascending: `max_length`, its half, a quarter and so on, rounded up to multiples of 8.

    `lengths_of(512, 3)` is (128, 256, 512).
    """
    halved = [-(-max_length // 2**times) for times in range(buckets)]
    return tuple(sorted({max_length, *(min(max_length, -(-each // SHORTEST) * SHORTEST) for each in halved)}))


def no_buckets(config: Config) -> list[Problem]:
    """Return the problem of lengths that no sequence could have."""
    buckets, max_length = config.data.buckets, config.data.max_length
    if buckets == 1:
        return []
    fix = None
    if config.data.packing:
        what = (
            f"data.buckets is {buckets} and data.packing is true: packed sequences are full, so they have one length."
        )
        fix = "Set data.buckets to 1, or data.packing to false."
    elif len(lengths_of(max_length, buckets)) < buckets:
        what = f"data.buckets is {buckets}, and {max_length} tokens cannot be halved {buckets - 1} times."
        most = next(few for few in range(buckets, 0, -1) if len(lengths_of(max_length, few)) == few)
        fix = f"Set data.buckets to at most {most}, or raise data.max_length."
    else:
        return []
    return [problem_of("TP076", file=config.name, pointer="/data/buckets", what=what, next=fix)]


def batches_of_one_length(
    order: Int[np.ndarray, " rows"], kinds: Int[np.ndarray, " rows"], *, number: int, batch_size: int, seed: int
) -> Int[np.ndarray, " rows"]:
    """Return the order of a pass, changed so that rows of one kind come together in batches.

    The rows that complete the last batch of the pass before stay in front. The others are sorted by kind, each kind in
    its own order, and cut into batches, which come in an order drawn from (seed, number); what is left over is last.

    Args:
        order: of the pass.
        kinds: of each row, as its length is.
        number: of the pass, from 0.
        batch_size: rows of a step.
        seed: of the run.
    """
    rows = len(order)
    lead = min(-number * rows % batch_size, rows)
    rest = order[lead:]
    rest = rest[np.argsort(kinds[rest], kind="stable")]
    batches = len(rest) // batch_size
    draw = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64), counter=GROUPS))
    whole = rest[: batches * batch_size].reshape(batches, batch_size)[draw.permutation(batches)]
    return np.concatenate([order[:lead], whole.reshape(-1), rest[batches * batch_size :]])
