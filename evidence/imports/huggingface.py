"""Read what the Hugging Face Trainer writes: `trainer_state.json` and the summaries `*_results.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evidence.imports.keys import row_values
from evidence.imports.run import TRAINER, Citation, Fact, FileReading, MetricRow
from evidence.imports.text import to_number
from schemas.problems import Lines

MEAN_NOTE = "The Hugging Face Trainer's train_loss is the mean over the whole run, not the loss of its last step."

SUMMARY_FACTS = {"train_loss": "result.mean_loss", "train_runtime": "result.train_seconds"}
_STATE_FACTS = {
    "global_step": "training.steps_done",
    "max_steps": "training.steps_planned",
    "num_train_epochs": "training.epochs_planned",
    "epoch": "training.epochs_done",
    "train_batch_size": "training.process_batch_size",
    "save_steps": "training.save_steps",
    "best_metric": "result.best_metric",
    "num_input_tokens_seen": "result.tokens_seen",
}


def is_trainer_summary(value: Mapping[str, Any]) -> bool:
    """Return whether a dict is what the Trainer writes at the end of training."""
    return not value.keys().isdisjoint({"train_runtime", "train_samples_per_second", "train_steps_per_second"})


def is_trainer_state(value: Any) -> bool:
    """Return whether a document is a trainer_state.json."""
    return isinstance(value, dict) and isinstance(value.get("log_history"), list) and "global_step" in value


def read_trainer_state(value: dict[str, Any], lines: Lines, file: str) -> FileReading:
    """Read the settings and the log; the last row of a finished run holds the mean loss, not the last one."""

    def collect_facts(part: Mapping[str, Any], names: Mapping[str, str], place: str) -> Iterator[Fact]:
        for key, name in names.items():
            number, pointer = to_number(part.get(key)), f"{place}/{key}"
            if number is not None and not (name == "result.tokens_seen" and number == 0):
                note = MEAN_NOTE if key == "train_loss" else None
                yield Fact(name=name, value=number, source=Citation.at(file, lines, pointer), note=note)

    facts = list(collect_facts(value, _STATE_FACTS, ""))
    rows = []
    for index, item in enumerate(value["log_history"]):
        pointer = f"/log_history/{index}"
        if not isinstance(item, dict):
            continue
        if is_trainer_summary(item):
            facts += collect_facts(item, SUMMARY_FACTS, pointer)
        elif values := row_values(item):
            rows.append(MetricRow(values=values, source=Citation.at(file, lines, pointer)))
    return FileReading(tool=TRAINER, facts=tuple(facts), metrics=tuple(rows))
