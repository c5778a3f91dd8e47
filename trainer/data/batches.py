"""Batches: the order of rows, packed sequences, and lengths to which sequences are padded.

Batches are a pure function of seed and step, so that resuming needs no saved data state. Each pass is a permutation of
all sequences drawn from (seed, pass), and step k takes positions k·batch to (k+1)·batch of the passes. Packed rows
cannot attend to each other, so packing changes the speed and not the result.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from trainer.config.tree import Config
from trainer.data.files import LazySequence

BUCKETS = 0x6275_636B  # random stream for the order of batches, independent of the order of rows


def one_each(rows: int) -> Sequence[list[int]]:
    """Return one sequence for each row."""
    return LazySequence(rows, lambda number: [number])


def pack_rows(lengths: Sequence[int] | Int[np.ndarray, " rows"], capacity: int, *, in_order: bool) -> list[list[int]]:
    """Pack rows of 1 to `capacity` tokens into sequences of at most `capacity` tokens; no row is split.

    Lengths 5, 3, 2, 4 and a capacity of 7 give the rows [0, 2] and [3, 1]; in order they give [0], [1, 2] and [3].
    With `in_order` a new sequence starts when the next row does not fit. Otherwise the longest rows come first, each
    into the fullest sequence with room (best fit decreasing, Johnson 1973: at most 11/9 of the fewest sequences,
    plus 4); rows of equal length keep their order.
    """
    found: list[list[int]] = []
    if in_order:
        room = 0
        for row, length in enumerate(lengths):
            if length > room:
                found.append([])
                room = capacity
            found[-1].append(row)
            room -= int(length)
        return found
    with_room: dict[int, list[int]] = {}  # sequences by their room; the one filled last comes first
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
    halved = (-(-max_length // 2**times) for times in range(1, buckets))
    rounded = (-(-each // 8) * 8 for each in halved)
    return tuple(sorted({max_length, *(min(max_length, each) for each in rounded)}))


def group_by_bucket(
    order: Int[np.ndarray, " rows"], buckets: Int[np.ndarray, " rows"], *, number: int, batch_size: int, seed: int
) -> Int[np.ndarray, " rows"]:
    """Reorder pass `number` of the rows so that rows of one bucket form batches.

    The rows that complete the last batch of the previous pass stay first. The others are sorted by bucket, keep their
    order within it, and are cut into batches, whose order is drawn from (seed, number). The rest comes last.
    """
    first = min(-number * len(order) % batch_size, len(order))
    rest = order[first:]
    rest = rest[np.argsort(buckets[rest], kind="stable")]
    batches = len(rest) // batch_size
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64), counter=BUCKETS))
    whole = rest[: batches * batch_size].reshape(batches, batch_size)[rng.permutation(batches)]
    return np.concatenate([order[:first], whole.reshape(-1), rest[batches * batch_size :]])


HostBatch = dict[str, np.ndarray]  # arrays by name in the memory of the host

Collate = Callable[[Sequence[Sequence[Any]], int], HostBatch]
"""Converts sequences of examples, padded to a length, to arrays of `[sequences …]`."""


def global_batch_size(config: Config, *, devices: int) -> int:
    """Return the sequences of an optimizer step over all devices."""
    return config.batch.microbatch_size * devices * config.batch.accumulation_steps


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Batches of encoded rows."""

    examples: Sequence[Any]
    sequences: Sequence[list[int]]  # examples of each sequence
    lengths: Int[np.ndarray, " rows"]  # tokens of each example
    widths: Int[np.ndarray, " rows"]  # tokens of the longest sequence of each example: of a pair, the longer answer
    collate: Collate
    shapes: tuple[int, ...]  # padded lengths in ascending order; one if rows are packed
    batch_size: int  # examples or packed sequences of a step over all devices, a multiple of `accumulation_steps`
    accumulation_steps: int
    seed: int
    shuffle: bool

    def rows(self, step: int) -> list[int]:
        """Return the row numbers of a step."""
        return [row for number in self._indices(step) for row in self.sequences[int(number)]]

    def batch(self, step: int) -> HostBatch:
        """Return the arrays of a step, in `accumulation_steps` microbatches."""
        indices = self._indices(step)
        sequences = [[self.examples[row] for row in self.sequences[int(number)]] for number in indices]
        arrays = self.collate(sequences, self.shapes[int(self._buckets[indices].max())])
        return {name: array.reshape(self.accumulation_steps, -1, *array.shape[1:]) for name, array in arrays.items()}

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding."""
        passes, rest = divmod(step * self.batch_size, len(self.sequences))
        return passes * self.tokens_per_pass + int(self._pass(passes)[1][rest])

    @cached_property
    def tokens_per_pass(self) -> int:
        """Tokens of all examples."""
        return int(self._tokens.sum())

    @property
    def lengths_in_use(self) -> tuple[int, ...]:
        """Padded lengths that batches have, in ascending order."""
        return tuple(self.shapes[bucket] for bucket in np.unique(self._buckets))

    @cached_property
    def _buckets(self) -> Int[np.ndarray, " sequences"]:
        """Index in `shapes` of the length that each sequence needs."""
        if len(self.shapes) == 1:
            return np.zeros(len(self.sequences), np.int64)
        return np.asarray(np.searchsorted(self.shapes, self.widths))

    @cached_property
    def _tokens(self) -> Int[np.ndarray, " sequences"]:
        lengths = self.lengths.tolist()
        return np.array([sum(map(lengths.__getitem__, rows)) for rows in self.sequences])

    @cached_property
    def _pass(self) -> Callable[[int], tuple[Int[np.ndarray, " sequences"], Int[np.ndarray, " sums"]]]:
        """Order of a pass by its number, and the tokens before each place; sequences of one length form batches."""

        @lru_cache(maxsize=2)  # a step may end one pass and begin the next
        def find(number: int) -> tuple[Int[np.ndarray, " sequences"], Int[np.ndarray, " sums"]]:
            order, key = np.arange(len(self.sequences)), np.array([self.seed, number], np.uint64)
            if self.shuffle:  # Philox is counter-based, so (seed, pass) determines the order
                order = np.random.Generator(np.random.Philox(key=key)).permutation(len(order))
            if len(self.shapes) > 1 and self.shuffle:
                batch_size, seed = self.batch_size, self.seed
                order = group_by_bucket(order, self._buckets, number=number, batch_size=batch_size, seed=seed)
            return order, np.concatenate([[0], np.cumsum(self._tokens[order])])

        return find

    def _indices(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the sequences of a step: with 5 in file order and batch size 2, [0, 1], [2, 3] and [4, 0]."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        passes, offsets = np.divmod(places, len(self.sequences))
        return np.concatenate([self._pass(int(number))[0][offsets[passes == number]] for number in np.unique(passes)])


class PrefetchingSource:
    """Builds the next batch of a run of `steps` in a thread while the devices compute."""

    def __init__(self, build: Callable[[int], HostBatch], *, steps: int) -> None:
        self._build, self._steps = build, steps
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._next: tuple[int, Future[HostBatch]] | None = None

    def __enter__(self) -> PrefetchingSource:
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def batch(self, step: int) -> HostBatch:
        """Return the batch of a step, and start to build the next one."""
        prefetched, self._next = self._next, None
        is_ready = prefetched is not None and prefetched[0] == step
        batch = prefetched[1].result() if prefetched and is_ready else self._build(step)
        if step + 1 < self._steps:
            self._next = (step + 1, self._thread.submit(self._build, step + 1))
        return batch
