"""One row of measurements, of whichever tool: its numbers by our names, and whether it is a row of a training."""

from __future__ import annotations

from typing import Any

from evidence.records.foreign.clock import seconds_of
from evidence.records.foreign.keys import metric_of
from evidence.records.foreign.numbers import finite, number_of

ELAPSED = "elapsed_seconds"
"""Our name of the time that a row states since the training began."""

_OTHER_COUNTS = {"_step", "iter", "iteration"}
"""Keys that count the steps of a training where no other key does."""


def is_trainer_summary(value: dict[str, Any]) -> bool:
    """Return whether a dict is what the Hugging Face Trainer writes at the end of training."""
    return "train_runtime" in value or "train_samples_per_second" in value or "train_steps_per_second" in value


def row_values(item: dict[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a row by our names; text that is a number counts, true and false do not."""
    values: dict[str, float | None] = {}
    # Beside the steps of the training, W&B counts calls of its logger as `_step`, and LitGPT microbatches as `iter`.
    of_steps = any(key not in _OTHER_COUNTS and metric_of(key) == "step" for key in item)
    for key, value in item.items():
        if key in _OTHER_COUNTS and of_steps:
            continue
        if key == "elapsed_time" and (seconds := seconds_of(value)) is not None:
            values[ELAPSED] = seconds
            continue
        number = number_of(value) if isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            values.setdefault(metric_of(key), finite(number))
        elif value is None and "loss" in metric_of(key):
            values.setdefault(metric_of(key), None)
    return values


def is_metric_row(values: dict[str, float | None]) -> bool:
    """Return whether numbers are a row of training metrics: a place in the run and something measured there."""
    place = {"step", "epoch"} & values.keys()
    return bool(place) and len(values.keys() - {"step", "epoch", "time", "timestamp", "wall_time"}) > 0
