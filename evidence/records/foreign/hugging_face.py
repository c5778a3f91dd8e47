"""`trainer_state.json` of the Hugging Face Trainer: its log, and what it states about the run."""

from __future__ import annotations

from typing import Any

from evidence.records.foreign.documents import MEAN_NOTE, is_trainer_summary, row_values
from evidence.records.foreign.numbers import finite
from evidence.records.foreign.view import Fact, FileReading, MetricRow, Source
from schemas.problems.problem import Lines

_FACTS = {
    "global_step": "training.steps_done",
    "max_steps": "training.steps_planned",
    "num_train_epochs": "training.epochs_planned",
    "epoch": "training.epochs_done",
    "train_batch_size": "training.process_batch_size",
    "best_metric": "result.best_metric",
    "num_input_tokens_seen": "result.tokens_seen",
}
_OF_SUMMARY = {"train_loss": "result.mean_loss", "train_runtime": "result.train_seconds"}


def is_trainer_state(value: Any) -> bool:
    """Return whether a document is a trainer_state.json, by its keys."""
    return isinstance(value, dict) and isinstance(value.get("log_history"), list) and "global_step" in value


def read_trainer_state(value: dict[str, Any], lines: Lines, file: str) -> FileReading:
    """Return the rows of the log, and the facts; the last row of a finished run holds the mean loss, not the last."""

    def source(pointer: str) -> Source:
        return Source(file=file, line=lines(pointer), pointer=pointer)

    facts = [
        Fact(name=name, value=number, source=source(f"/{key}"))
        for key, name in _FACTS.items()
        if (number := _number(value.get(key))) is not None and not (key == "num_input_tokens_seen" and number == 0)
    ]
    rows = []
    for index, item in enumerate(value["log_history"]):
        if not isinstance(item, dict):
            continue
        if is_trainer_summary(item):
            facts += [
                Fact(
                    name=name,
                    value=number,
                    source=source(f"/log_history/{index}/{key}"),
                    note=MEAN_NOTE if key == "train_loss" else None,
                )
                for key, name in _OF_SUMMARY.items()
                if (number := _number(item.get(key))) is not None
            ]
        elif values := row_values(item):
            rows.append(MetricRow(values=values, source=source(f"/log_history/{index}")))
    return FileReading(tool="Hugging Face Trainer", facts=tuple(facts), metrics=tuple(rows))


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(value)
