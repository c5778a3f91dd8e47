"""Where batches come from: a source gives the batch of any step, in any order.

A batch follows from seed and step alone, so that a resumed run needs no saved state of its data. Rows are one source;
the step knows nothing of rows.
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
from trainer.data.buckets import batches_of_one_length, lengths_of
from trainer.data.order import order_of_pass, rows_in
from trainer.data.packing import Sequences, one_each, pack_rows

HostBatch = dict[str, np.ndarray]
"""Arrays by name, in the host's memory."""

Collate = Callable[[Sequence[Sequence[Any]], int], HostBatch]
"""From sequences of one or several examples, and the length to which each is padded, to arrays of `[sequences …]`."""


@runtime_checkable
class BatchSource(Protocol):
    """What a run learns from."""

    def batch(self, step: int) -> HostBatch:
        """Return what optimizer step `step`, counted from 0, learns from: arrays `[accum batch …]` by name."""

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step, by their number."""

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one, padding left out."""


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Examples of which each is used once before any is used twice."""

    examples: Sequence[Any]
    sequences: Sequences
    """Which of them share a sequence."""
    lengths: Int[np.ndarray, " rows"]
    """Tokens of each example."""
    widths: Int[np.ndarray, " rows"]
    """Tokens that a sequence must have room for to hold each: with a pair, those of its longer answer."""
    collate: Collate
    shapes: tuple[int, ...]
    """Lengths that sequences are padded to, ascending; where rows share sequences there is one."""
    batch_size: int
    """Sequences of a step over all devices, or pairs of them, a multiple of `accumulation_steps`."""
    accumulation_steps: int
    seed: int
    shuffle: bool

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step, by their number."""
        return [int(row) for number in self._numbers(step) for row in self.sequences[int(number)]]

    def batch(self, step: int) -> HostBatch:
        """Return the arrays of a step's rows, in `accumulation_steps` microbatches."""
        numbers = self._numbers(step)
        sequences = [[self.examples[row] for row in self.sequences[int(one)]] for one in numbers]
        arrays = self.collate(sequences, self.shapes[int(self._kinds[numbers].max())])
        return {name: array.reshape(self.accumulation_steps, -1, *array.shape[1:]) for name, array in arrays.items()}

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one: whole passes, and what was taken of the last."""
        passes, rest = divmod(step * self.batch_size, len(self.sequences))
        return passes * self.tokens_per_pass + int(self._tokens[self._order(passes)[:rest]].sum())

    @property
    def tokens_per_pass(self) -> int:
        """Tokens of all examples."""
        return int(self._tokens.sum())

    @property
    def lengths_in_use(self) -> tuple[int, ...]:
        """The lengths that batches have, ascending: those of which some sequence is."""
        return tuple(self.shapes[kind] for kind in np.unique(self._kinds))

    @cached_property
    def _kinds(self) -> Int[np.ndarray, " sequences"]:
        """The place in `shapes` of the length that each sequence needs."""
        if len(self.shapes) == 1:
            return np.zeros(len(self.sequences), np.int64)
        places: Int[np.ndarray, " sequences"] = np.searchsorted(self.shapes, self.widths[self.sequences.rows])
        return places

    @cached_property
    def _tokens(self) -> Int[np.ndarray, " sequences"]:
        return self.sequences.tokens(self.lengths)

    def _numbers(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the sequences of a step, by their number."""
        return rows_in(self._order, step, rows=len(self.sequences), batch_size=self.batch_size)

    @cached_property
    def _order(self) -> Callable[[int], Int[np.ndarray, " sequences"]]:
        """The order of a pass by its number; with several lengths, sequences of one length come in batches."""
        settings: dict[str, Any] = {"rows": len(self.sequences), "seed": self.seed, "shuffle": self.shuffle}
        if len(self.shapes) == 1 or not self.shuffle:
            return partial(order_of_pass, **settings)

        @lru_cache(maxsize=2)  # a step may end one pass and begin the next
        def grouped(number: int) -> Int[np.ndarray, " sequences"]:
            order = order_of_pass(number, **settings)
            return batches_of_one_length(order, self._kinds, number=number, batch_size=self.batch_size, seed=self.seed)

        return grouped


class PrefetchingSource:
    """A source whose next batch is made in a thread while the devices work on this one.

    Since a batch follows from its step alone, it is the same anyone who makes it, and when.

    Args:
        source: makes the batches.
        steps: how many the run has; none is made beyond them.
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
        """Return the batch of a step, and begin that of the next."""
        ahead, self._next = self._next, None
        batch = ahead[1].result() if ahead is not None and ahead[0] == step else self._source.batch(step)
        if step + 1 < self._steps:
            self._next = (step + 1, self._thread.submit(self._source.batch, step + 1))
        return batch

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step, by their number."""
        return self._source.rows(step)

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one, padding left out."""
        return self._source.tokens_before(step)


def batch_size_of(config: Config, *, devices: int) -> int:
    """Return the sequences per optimizer step over all devices."""
    return config.batch.microbatch_size * devices * config.batch.accumulation_steps


def row_source(
    examples: Sequence[Any],
    lengths: Int[np.ndarray, " rows"],
    widths: Int[np.ndarray, " rows"],
    collate: Collate,
    config: Config,
    *,
    devices: int,
    each: int = 1,
    microbatches: int | None = None,
) -> RowSource:
    """Return the source of a run that learns from rows.

    Args:
        examples: what the objective made of the rows.
        lengths: tokens of each.
        widths: tokens that a sequence must have room for to hold each, `data.max_length` at most.
        collate: the objective's.
        config: of the run.
        devices: that share a step.
        each: sequences that an example makes, 2 of a pair.
        microbatches: of a step. None: `batch.accumulation_steps`.
    """
    pack = config.data.packing
    return RowSource(
        examples=examples,
        sequences=pack_rows(lengths, config.data.max_length, in_order=not config.data.shuffle)
        if pack
        else one_each(len(examples)),
        lengths=lengths,
        widths=widths,
        collate=collate,
        shapes=lengths_of(config.data.max_length, config.data.buckets),
        batch_size=batch_size_of(config, devices=devices) // each,
        accumulation_steps=config.batch.accumulation_steps if microbatches is None else microbatches,
        seed=config.seed,
        shuffle=config.data.shuffle,
    )
