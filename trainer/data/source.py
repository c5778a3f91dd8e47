"""Where batches come from: a source gives the batch of any step, whatever was asked before.

A batch follows from seed and step alone, so that a resumed run needs no saved state of its data. Rows in memory are one
source; the step knows nothing of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from trainer.config.tree import Config
from trainer.data.order import rows_of_step

HostBatch = dict[str, np.ndarray]
"""Arrays by name, in the host's memory."""


@runtime_checkable
class Source(Protocol):
    """What a run learns from."""

    def batch(self, step: int) -> HostBatch:
        """Return what optimizer step `step`, counted from 0, learns from: arrays `[accum batch …]` by name."""


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Rows in memory, each used once before any is used twice."""

    examples: Sequence[Any]
    collate: Callable[[Sequence[Any]], HostBatch]
    """From examples to arrays of `[examples …]`."""
    batch_size: int
    """Sequences of a step over all devices, a multiple of `accumulation_steps`."""
    accumulation_steps: int
    seed: int
    shuffle: bool

    def rows(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the rows of a step, by their number."""
        return rows_of_step(
            step, rows=len(self.examples), batch_size=self.batch_size, seed=self.seed, shuffle=self.shuffle
        )

    def batch(self, step: int) -> HostBatch:
        """Return the arrays of a step's rows, in `accumulation_steps` microbatches."""
        arrays = self.collate([self.examples[row] for row in self.rows(step)])
        return {name: array.reshape(self.accumulation_steps, -1, *array.shape[1:]) for name, array in arrays.items()}


def batch_size_of(config: Config, *, devices: int) -> int:
    """Return the sequences per optimizer step over all devices."""
    return config.batch.microbatch_size * devices * config.batch.accumulation_steps


def rows_in_memory(
    examples: Sequence[Any], collate: Callable[[Sequence[Any]], HostBatch], config: Config, *, devices: int
) -> RowSource:
    """Return the source of a run whose examples are all in memory."""
    return RowSource(
        examples=examples,
        collate=collate,
        batch_size=batch_size_of(config, devices=devices),
        accumulation_steps=config.batch.accumulation_steps,
        seed=config.seed,
        shuffle=config.data.shuffle,
    )
