"""Rows of two tools: Keras (a History as JSON, CSVLogger, console lines) and MLPerf's log.

Source: keras.callbacks.History, CSVLogger (epochs count from 0) and ProgbarLogger (epochs count from 1); MLCommons,
training_policies, "Logging": keys `run_start`, `eval_accuracy`, `global_batch_size`, `status`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from foreign.readers.keys import metric_of
from foreign.readers.statement import Citation, Fact, Scalar
from foreign.readers.text import NUMBER, LogLine, finite, number_of
from foreign.readers.view import FileReading, ForeignScore, MetricRow
from schemas.problems import Lines, pointer_to

KERAS = "Keras"

_EPOCH_LINE = re.compile(r"^\s*Epoch (\d{1,7})/(\d{1,7})\s*$")
_END_OF_EPOCH = re.compile(r"\d+/\d+\b.*?\d(?:m?s|us|ms)?(?:/step|/sample|/epoch)\b(?P<rest>.*)$")
_FIGURE = re.compile(rf"\b([A-Za-z]\w*):\s*({NUMBER})", re.IGNORECASE)
_HEAD = re.compile(r"^(?:epoch|step|,)[\w,;/ .-]*$", re.IGNORECASE)


def is_history(value: Any) -> bool:
    """Return whether a document is the `history` of a training: lists of numbers of one length, a loss among them."""
    if not isinstance(value, dict) or not 1 <= len(value) <= 200 or "loss" not in value:
        return False
    columns = list(value.values())
    first = len(columns[0]) if isinstance(columns[0], list) else 0
    return first > 0 and all(
        isinstance(column, list) and len(column) == first and all(isinstance(one, int | float) for one in column)
        for column in columns
    )


def read_history(value: dict[str, list[float]], lines: Lines, file: str) -> FileReading:
    """Return one row for each epoch; the first is epoch 0, as Keras counts."""
    names = {key: metric_of(key) for key in value}
    count = len(value["loss"])
    rows = [
        MetricRow(
            values={"epoch": index} | {names[key]: finite(value[key][index]) for key in value},
            source=Citation(file=file, line=lines(pointer_to(("loss", index))), pointer=pointer_to(("loss", index))),
        )
        for index in range(count)
    ]
    return FileReading(tool=KERAS, metrics=tuple(rows))


def is_table(text: str) -> bool:
    """Return whether a log is a table: a line of names with an epoch or a step first, and numbers below it."""
    head, _, rest = text.lstrip("\ufeff").partition("\n")
    first = rest.partition("\n")[0]
    cells = re.split(r"[,;]", head.strip())
    below = re.split(r"[,;]", first.strip())
    has_names = len(cells) > 1 and _HEAD.match(head.strip()) is not None
    return has_names and len(below) == len(cells) and number_of(below[0]) is not None


def epoch_of(text: str) -> tuple[int, int] | None:
    """Return epoch and number of epochs of a line that opens one: `Epoch 3/10` is (3, 10)."""
    match = _EPOCH_LINE.match(text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def figures_of_line(text: str) -> dict[str, float | None]:
    """Return the figures of a finished progress bar of Keras by our names, or empty if the line is not one.

    Example:
        >>> figures_of_line("32/32 [=====] - 1s 8ms/step - loss: 0.5 - accuracy: 0.8 - val_loss: 0.6")
        {'loss': 0.5, 'accuracy': 0.8, 'eval_loss': 0.6}
        >>> figures_of_line("Step 10 loss: 0.5")
        {}
    """
    match = _END_OF_EPOCH.search(text)
    if match is None or "loss" not in match.group("rest"):
        return {}
    counted = re.search(r"(\d+)/(\d+)\b", text)
    if counted is None or counted.group(1) != counted.group(2):
        return {}  # A bar that still runs.
    figures: dict[str, float | None] = {}
    for name, literal in _FIGURE.findall(match.group("rest")):
        number = number_of(literal)
        if number is not None:
            figures.setdefault(metric_of(name), finite(number))
    return figures


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


def event_of(line: LogLine) -> dict[str, Any] | None:
    """Return the event of a line; None where it holds none."""
    _, mark, rest = line.text.partition(MARK)
    if not mark:
        return None
    try:
        event = json.loads(rest.strip())
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("key"), str) else None


def facts_of(event: dict[str, Any], source: Citation) -> Iterator[Fact]:
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


def row_of(event: dict[str, Any], source: Citation) -> MetricRow | None:
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


def score_of_event(event: dict[str, Any], source: Citation) -> ForeignScore | None:
    """Return the quality that an evaluation of the run reached."""
    number = _number(event.get("value"))
    if event["key"] != "eval_accuracy" or number is None:
        return None
    at = next((f"{name} {value:g}" for name, value in place_of(event) if value is not None), None)
    return ForeignScore(name="eval_accuracy", value=number, source=source, checkpoint=at)


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
