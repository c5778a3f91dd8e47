"""The figures by which a run is known in lists, comparisons and reports, whichever tool wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from schemas.reading import Array


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a run. A figure is None if it is missing, contradictory or withheld.

    Attributes:
        run_id: The run's id.
        mode: smoke or full.
        status: succeeded, failed, interrupted or running; None for runs of other tools.
        model: Name of the model.
        dataset: Name of the dataset.
        method: How the model was adapted.
        device: Kind and number of the devices, or the words of another tool.
        commit: Commit of the code.
        started_at: When it started.
        steps_done: Optimizer steps completed; of a running run, the step of the last row.
        steps_planned: Optimizer steps requested.
        tokens_seen: Training tokens, without padding if the rows record it.
        losses: `[rows]` finite training losses in order.
        first_loss: Loss of the first row, in nats per supervised token.
        last_loss: Loss of the last row; None also if it is not finite.
        best_loss: Smallest loss.
        mean_loss: Mean loss.
        train_seconds: Time spent in training.
        duration_seconds: Time from start to end, or to the last row if there is no end.
        peak_memory_bytes: Largest memory of one device.
    """

    run_id: str | None = None
    mode: str | None = None
    status: str | None = None
    model: str | None = None
    dataset: str | None = None
    method: str | None = None
    device: str | None = None
    commit: str | None = None
    started_at: str | None = None
    steps_done: int | None = None
    steps_planned: int | None = None
    tokens_seen: int | None = None
    losses: Array = field(default_factory=lambda: np.array([]))
    first_loss: float | None = None
    last_loss: float | None = None
    best_loss: float | None = None
    mean_loss: float | None = None
    train_seconds: float | None = None
    duration_seconds: float | None = None
    peak_memory_bytes: int | None = None
