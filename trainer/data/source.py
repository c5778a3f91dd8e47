"""Where batches come from: a source gives the batch of any step, whatever was asked before.

A batch follows from seed and step alone, so that a resumed run needs no saved state of its data. Rows are one source;
the step knows nothing of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from trainer.config.tree import Config
from trainer.data.order import order_of_pass, rows_of_step
from trainer.data.packing import Sequences, one_each, packed

HostBatch = dict[str, np.ndarray]
"""Arrays by name, in the host's memory."""

Collate = Callable[[Sequence[Sequence[Any]]], HostBatch]
"""From sequences of one or several examples to arrays of `[sequences …]`."""


@runtime_checkable
class Source(Protocol):
    """What a run learns from."""

    def batch(self, step: int) -> HostBatch:
        """Return what optimizer step `step`, counted from 0, learns from: arrays `[accum batch …]` by name."""

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
    collate: Collate
    batch_size: int
    """Sequences of a step over all devices, a multiple of `accumulation_steps`."""
    accumulation_steps: int
    seed: int
    shuffle: bool

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step, by their number."""
        return [int(row) for number in self._numbers(step) for row in self.sequences[int(number)]]

    def batch(self, step: int) -> HostBatch:
        """Return the arrays of a step's rows, in `accumulation_steps` microbatches."""
        arrays = self.collate([[self.examples[row] for row in self.sequences[int(one)]] for one in self._numbers(step)])
        return {name: array.reshape(self.accumulation_steps, -1, *array.shape[1:]) for name, array in arrays.items()}

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one: whole passes, and what was taken of the last."""
        passes, rest = divmod(step * self.batch_size, len(self.sequences))
        order = order_of_pass(passes, rows=len(self.sequences), seed=self.seed, shuffle=self.shuffle)
        return passes * self.tokens_per_pass + int(self._tokens[order[:rest]].sum())

    @property
    def tokens_per_pass(self) -> int:
        """Tokens of all examples."""
        return int(self._tokens.sum())

    @cached_property
    def _tokens(self) -> Int[np.ndarray, " sequences"]:
        return self.sequences.tokens(self.lengths)

    def _numbers(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the sequences of a step, by their number."""
        return rows_of_step(
            step, rows=len(self.sequences), batch_size=self.batch_size, seed=self.seed, shuffle=self.shuffle
        )


class Prefetched:
    """A source whose next batch is made in a thread while the devices work on this one.

    Since a batch follows from its step alone, it is the same whoever makes it, and when.

    Args:
        source: makes the batches.
        steps: how many the run has; none is made beyond them.
    """

    def __init__(self, source: Source, *, steps: int) -> None:
        self._source = source
        self._steps = steps
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._next: tuple[int, Future[HostBatch]] | None = None

    def __enter__(self) -> Prefetched:
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

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one, padding left out."""
        return self._source.tokens_before(step)


def batch_size_of(config: Config, *, devices: int) -> int:
    """Return the sequences per optimizer step over all devices."""
    return config.batch.microbatch_size * devices * config.batch.accumulation_steps


def row_source(
    examples: Sequence[Any],
    lengths: Int[np.ndarray, " rows"],
    collate: Collate,
    config: Config,
    *,
    devices: int,
) -> RowSource:
    """Return the source of a run that learns from rows.

    Args:
        examples: what the objective made of the rows.
        lengths: tokens of each, `data.max_length` at most.
        collate: the objective's.
        config: of the run.
        devices: that share a step.
    """
    pack = config.data.packing
    return RowSource(
        examples=examples,
        sequences=packed(lengths, config.data.max_length, in_order=not config.data.shuffle)
        if pack
        else one_each(len(examples)),
        lengths=lengths,
        collate=collate,
        batch_size=batch_size_of(config, devices=devices),
        accumulation_steps=config.batch.accumulation_steps,
        seed=config.seed,
        shuffle=config.data.shuffle,
    )
