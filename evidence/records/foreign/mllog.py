"""MLPerf's training log: lines of `:::MLLOG` with one JSON object each, as the mlperf_logging package writes them.

Source: MLCommons, training_policies, "Logging": keys `run_start`, `eval_accuracy`, `global_batch_size`, `status`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from evidence.records.foreign.numbers import finite
from evidence.records.foreign.statement import Fact, Scalar, Source
from evidence.records.foreign.text import Line
from evidence.records.foreign.view import MetricRow, Score
from schemas.problems.problem import pointer_to

MARK = ":::MLLOG"
MLPERF = "MLPerf log"

_FACTS = {
    "global_batch_size": "training.effective_batch_size",
    "gradient_accumulation_steps": "training.accumulation_steps",
    "train_samples": "dataset.rows",
    "eval_samples": "evaluation.items",
    "seed": "training.seed",
    "opt_name": "training.optimizer",
    "opt_base_learning_rate": "training.learning_rate",
    "opt_weight_decay": "training.weight_decay",
    "opt_learning_rate_warmup_steps": "training.warmup_steps",
    "opt_learning_rate_training_steps": "training.steps_planned",
    "opt_gradient_clip_norm": "training.gradient_clipping",
    "max_sequence_length": "training.sequence_length",
    "max_steps": "training.steps_planned",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
}
_TEXT = {"training.optimizer"}
_STATUS = {"success": "completed", "aborted": "failed"}
_LOSSES = {"train_loss": "loss", "loss": "loss", "eval_loss": "eval_loss"}


def event_of(line: Line) -> dict[str, Any] | None:
    """Return the event of a line; None where it holds none."""
    _, mark, rest = line.text.partition(MARK)
    if not mark:
        return None
    try:
        event = json.loads(rest.strip())
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("key"), str) else None


def facts_of(event: dict[str, Any], source: Source) -> Iterator[Fact]:
    """Yield the settings and the status that an event states."""
    key, value = event["key"], event.get("value")
    name = _FACTS.get(key)
    source = replace(source, pointer=pointer_to((key,)))
    if name in _TEXT and isinstance(value, str):
        yield Fact(name=name, value=value, source=source)
    elif name is not None and name not in _TEXT and (number := _number(value)) is not None:
        yield Fact(name=name, value=number, source=source)
    elif key == "run_stop":
        status = _metadata(event).get("status")
        if isinstance(status, str):
            yield Fact(name="run.status", value=_STATUS.get(status, status), source=source)
    elif key == "submission_benchmark" and isinstance(value, str):
        yield Fact(name="run.benchmark", value=value, source=source)


def row_of(event: dict[str, Any], source: Source) -> MetricRow | None:
    """Return the loss or the accuracy that an event measured, with the step or the epoch of its metadata."""
    value = event.get("value")
    if event["key"] == "eval_accuracy" and isinstance(value, dict):
        value = next(iter(value.values()), None)
    number = _number(value)
    name = _LOSSES.get(event["key"], "eval_accuracy" if event["key"] == "eval_accuracy" else None)
    place = {name: at for name, at in place_of(event) if at is not None}
    if number is None or name is None or not place:
        return None
    return MetricRow(values={**place, name: number}, source=source)


def score_of_event(event: dict[str, Any], source: Source) -> Score | None:
    """Return the quality that an evaluation of the run reached."""
    number = _number(event.get("value"))
    if event["key"] != "eval_accuracy" or number is None:
        return None
    at = next((f"{name} {value:g}" for name, value in place_of(event) if value is not None), None)
    return Score(name="eval_accuracy", value=number, source=source, checkpoint=at)


def place_of(event: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield step and epoch of an event, as far as its metadata state them."""
    metadata = _metadata(event)
    for key, name in (("step_num", "step"), ("step", "step"), ("epoch_num", "epoch"), ("epoch", "epoch")):
        if key in metadata:
            yield name, _number(metadata[key])


def clock_of(event: dict[str, Any]) -> float | None:
    """Return the time of an event in seconds; None where it states none."""
    number = _number(event.get("time_ms"))
    return None if number is None else number / 1000


def _metadata(event: dict[str, Any]) -> dict[str, Any]:
    metadata = event.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _number(value: Scalar | Any) -> int | float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else finite(value)
