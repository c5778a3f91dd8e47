"""Batches by step: a pure function of seed and step, so that resuming needs no saved data state.

Rows are read as an endless stream of passes. Each pass is a permutation of all sequences drawn from (seed, pass), and
step k takes positions k·batch to (k+1)·batch of the stream: every sequence is used once before any is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from trainer.config.tree import Config
from trainer.data.packing import Sequences, group_by_bucket

HostBatch = dict[str, np.ndarray]
"""Arrays by name in the memory of the host."""

Collate = Callable[[Sequence[Sequence[Any]], int], HostBatch]
"""Converts sequences of examples, padded to a length, to arrays of `[sequences …]`."""


@lru_cache(maxsize=2)  # a step may end one pass and begin the next
def pass_order(number: int, *, rows: int, seed: int, shuffle: bool) -> Int[np.ndarray, " rows"]:
    """Return the order of one pass as a read-only array; Philox is counter-based, so (seed, pass) determines it."""
    if not shuffle:
        order = np.arange(rows)
    else:
        order = np.random.Generator(np.random.Philox(key=np.array([seed, number], np.uint64))).permutation(rows)
    order.setflags(write=False)
    return order


def batch_indices(
    order: Callable[[int], Int[np.ndarray, " rows"]], step: int, *, rows: int, batch_size: int
) -> Int[np.ndarray, " batch"]:
    """Return the rows of a step, counted from 0, given the order of each pass.

    With 5 rows in file order and batch size 2, steps 0, 1 and 2 take [0, 1], [2, 3] and [4, 0].
    """
    passes, offsets = np.divmod(np.arange(step * batch_size, (step + 1) * batch_size), rows)
    return np.concatenate([order(int(number))[offsets[passes == number]] for number in np.unique(passes)])


def global_batch_size(config: Config, *, devices: int) -> int:
    """Return the sequences of an optimizer step over all devices."""
    return config.batch.microbatch_size * devices * config.batch.accumulation_steps


@runtime_checkable
class BatchSource(Protocol):
    """Batches by step."""

    def batch(self, step: int) -> HostBatch:
        """Return the arrays of optimizer step `step`, counted from 0, `[accumulation batch …]` by name."""

    def rows(self, step: int) -> list[int]:
        """Return the row numbers of a step."""

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding."""


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Batches of encoded rows."""

    examples: Sequence[Any]
    sequences: Sequences
    """Examples of each sequence."""
    lengths: Int[np.ndarray, " rows"]
    """Tokens of each example."""
    widths: Int[np.ndarray, " rows"]
    """Tokens of the longest sequence of each example, such as the longer answer of a pair."""
    collate: Collate
    shapes: tuple[int, ...]
    """Padded lengths in ascending order; one if rows are packed."""
    batch_size: int
    """Examples or packed sequences of a step over all devices, a multiple of `accumulation_steps`."""
    accumulation_steps: int
    seed: int
    shuffle: bool

    def rows(self, step: int) -> list[int]:
        """Return the row numbers of a step."""
        return [row for number in self._indices(step) for row in self.sequences[int(number)].tolist()]

    def batch(self, step: int) -> HostBatch:
        """Return the arrays of a step, in `accumulation_steps` microbatches."""
        indices = self._indices(step)
        sequences = [[self.examples[int(row)] for row in self.sequences[int(number)]] for number in indices]
        arrays = self.collate(sequences, self.shapes[int(self._buckets[indices].max())])
        return {name: array.reshape(self.accumulation_steps, -1, *array.shape[1:]) for name, array in arrays.items()}

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding."""
        passes, rest = divmod(step * self.batch_size, len(self.sequences))
        return passes * self.tokens_per_pass + int(self._cumulative_tokens(passes)[rest])

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
        buckets: Int[np.ndarray, " sequences"] = np.searchsorted(self.shapes, self.widths[self.sequences.rows])
        return buckets

    @cached_property
    def _tokens(self) -> Int[np.ndarray, " sequences"]:
        return self.sequences.count_tokens(self.lengths)

    @cached_property
    def _cumulative_tokens(self) -> Callable[[int], Int[np.ndarray, " sums"]]:
        """Tokens before each position of a pass, by the number of the pass."""

        @lru_cache(maxsize=2)
        def cumulative(number: int) -> Int[np.ndarray, " sums"]:
            return np.concatenate([[0], np.cumsum(self._tokens[self._order(number)])])

        return cumulative

    @cached_property
    def _order(self) -> Callable[[int], Int[np.ndarray, " sequences"]]:
        """Order of a pass by its number; with several lengths, sequences of one length form batches."""
        plain = partial(pass_order, rows=len(self.sequences), seed=self.seed, shuffle=self.shuffle)
        if len(self.shapes) == 1 or not self.shuffle:
            return plain

        @lru_cache(maxsize=2)
        def grouped(number: int) -> Int[np.ndarray, " sequences"]:
            batch_size, seed = self.batch_size, self.seed
            return group_by_bucket(plain(number), self._buckets, number=number, batch_size=batch_size, seed=seed)

        return grouped

    def _indices(self, step: int) -> Int[np.ndarray, " batch"]:
        return batch_indices(self._order, step, rows=len(self.sequences), batch_size=self.batch_size)


class PrefetchingSource:
    """Builds the next batch in a thread while the devices compute.

    Args:
        source: Builds the batches.
        steps: Number of steps of the run.
    """

    def __init__(self, source: BatchSource, *, steps: int) -> None:
        self._source = source
        self._steps = steps
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
        batch = prefetched[1].result() if prefetched and is_ready else self._source.batch(step)
        if step + 1 < self._steps:
            self._next = (step + 1, self._thread.submit(self._source.batch, step + 1))
        return batch

    def rows(self, step: int) -> list[int]:
        """Return the row numbers of a step."""
        return self._source.rows(step)

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding."""
        return self._source.tokens_before(step)
