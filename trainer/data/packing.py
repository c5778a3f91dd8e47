"""Shapes of batches: rows that share a sequence, and lengths to which sequences are padded.

Rows of 37 tokens in sequences of 512 leave 93 % of the work to padding. Packed rows cannot attend to each other (each
is a segment whose positions start at 0), so packing changes the speed and not the result. Without packing, a few
lengths (`data.buckets`) save padding: a step uses the shortest one that fits its rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

LENGTH_MULTIPLE = 8
"""Divides all bucket lengths but the largest."""
BUCKETS = 0x6275_636B
"""Random stream for the order of batches, independent of the order of rows."""


class Sequences:
    """Row numbers by sequence, as two flat arrays.

    Args:
        rows: Rows of the first sequence, of the second, and so on.
        starts: Place in `rows` at which each sequence begins.
    """

    def __init__(self, rows: Int[np.ndarray, " rows"], starts: Int[np.ndarray, " sequences"]) -> None:
        self.rows = rows
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> Int[np.ndarray, " rows"]:
        last = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.rows)
        return self.rows[self.starts[number] : last]

    def count_tokens(self, lengths: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " sequences"]:
        """Return the tokens of each sequence without padding, given the tokens of each row."""
        return np.add.reduceat(lengths[self.rows], self.starts)


def one_each(rows: int) -> Sequences:
    """Return one sequence for each row."""
    return Sequences(np.arange(rows), np.arange(rows))


def pack_rows(lengths: Sequence[int] | Int[np.ndarray, " rows"], capacity: int, *, in_order: bool) -> Sequences:
    """Pack rows into sequences of at most `capacity` tokens; no row is split.

    Lengths 5, 3, 2, 4 and a capacity of 7 give the rows [0, 2] and [3, 1]; in order they give [0], [1, 2] and [3].

    Args:
        lengths: Tokens of each row, 1 to `capacity`.
        capacity: Tokens of a sequence.
        in_order: Keep the order of the rows, and start a new sequence when the next row does not fit. Otherwise use
            best fit decreasing: longest rows first, each into the fullest sequence with room (Johnson 1973: at most
            11/9 of the fewest sequences, plus 4). Rows of equal length keep their order.
    """
    found = _in_order(lengths, capacity) if in_order else _best_fit_decreasing(lengths, capacity)
    sizes = np.array([len(rows) for rows in found])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return Sequences(np.fromiter((row for rows in found for row in rows), np.int64, int(sizes.sum())), starts)


def _in_order(lengths: Sequence[int] | Int[np.ndarray, " rows"], capacity: int) -> list[list[int]]:
    found: list[list[int]] = []
    room = 0
    for row, length in enumerate(lengths):
        if not found or length > room:
            found.append([])
            room = capacity
        found[-1].append(row)
        room -= int(length)
    return found


def _best_fit_decreasing(lengths: Sequence[int] | Int[np.ndarray, " rows"], capacity: int) -> list[list[int]]:
    """Pack rows; among equally full sequences the one filled last is used."""
    found: list[list[int]] = []
    with_room: dict[int, list[int]] = {}
    rooms: list[int] = []  # sorted keys of `with_room`: at most `capacity`, whatever the number of rows
    for row in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        length = int(lengths[row])
        place = bisect_left(rooms, length)
        if place == len(rooms):
            number, room = len(found), capacity
            found.append([])
        else:
            room = rooms[place]
            number = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[place]
        found[number].append(row)
        if (left := room - length) > 0:
            if left not in with_room:
                with_room[left] = []
                insort(rooms, left)
            with_room[left].append(number)
    return found


def bucket_lengths(max_length: int, buckets: int) -> tuple[int, ...]:
    """Return padded lengths in ascending order: `max_length`, half as long, and so on, rounded up to multiples of 8.

    `bucket_lengths(512, 3)` is (128, 256, 512).
    """
    halved = [-(-max_length // 2**times) for times in range(buckets)]
    return tuple(
        sorted({max_length, *(min(max_length, -(-each // LENGTH_MULTIPLE) * LENGTH_MULTIPLE) for each in halved)})
    )


def group_by_bucket(
    order: Int[np.ndarray, " rows"], buckets: Int[np.ndarray, " rows"], *, number: int, batch_size: int, seed: int
) -> Int[np.ndarray, " rows"]:
    """Reorder a pass so that rows of one bucket form batches.

    The rows that complete the last batch of the previous pass stay first. The others are sorted by bucket, keep their
    order within it, and are cut into batches, whose order is drawn from (seed, number). The rest comes last.

    Args:
        order: Order of the rows in the pass.
        buckets: Bucket of each row.
        number: Number of the pass, from 0.
        batch_size: Rows of a step.
        seed: Seed of the run.
    """
    first = min(-number * len(order) % batch_size, len(order))
    rest = order[first:]
    rest = rest[np.argsort(buckets[rest], kind="stable")]
    batches = len(rest) // batch_size
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64), counter=BUCKETS))
    whole = rest[: batches * batch_size].reshape(batches, batch_size)[rng.permutation(batches)]
    return np.concatenate([order[:first], whole.reshape(-1), rest[batches * batch_size :]])
