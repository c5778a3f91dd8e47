"""The figures by which a run is known in lists, comparisons and reports, under one name each, by any author."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from schemas.reading import Array


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is known of a run. None in any field: not stated, stated in two ways, or withheld."""

    run_id: str | None = None
    """The run's name, as it states it."""
    mode: str | None = None
    """smoke or full."""
    status: str | None = None
    """succeeded, failed, interrupted or running; trainproof did not watch the runs of other tools."""
    model: str | None = None
    """Name of the model."""
    dataset: str | None = None
    """Name of the data set."""
    method: str | None = None
    """How the model was adapted."""
    device: str | None = None
    """Kind of the devices, with their number where there are several; of another tool's run in its words."""
    commit: str | None = None
    """Commit of the code."""
    started_at: str | None = None
    """When it started."""
    steps_done: int | None = None
    """Optimizer steps completed; while a run is under way, the step of its last row."""
    steps_planned: int | None = None
    """Optimizer steps requested."""
    tokens_seen: int | None = None
    """Tokens learned from; padding left out where the rows state its share."""
    losses: Array = field(default_factory=lambda: np.array([]))
    """`[rows]` training losses that are finite, in order."""
    first_loss: float | None = None
    """Loss of the first row, in nats per supervised token."""
    last_loss: float | None = None
    """Loss of the last row. None also where it is not finite."""
    best_loss: float | None = None
    """Smallest loss."""
    mean_loss: float | None = None
    """Mean loss over the run."""
    train_seconds: float | None = None
    """Time spent in training."""
    duration_seconds: float | None = None
    """Time from start to end; without an end, to the last row."""
    peak_memory_bytes: int | None = None
    """Largest memory of one device."""
