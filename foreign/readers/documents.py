"""JSON and YAML documents of unknown shape: every value whose key states what it is, wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from foreign.readers.arithmetic import from_counts, from_loss, from_parts, from_precision, from_speeds
from foreign.readers.keys import (
    OF_EVALUATION,
    RESULTS,
    TEXT_FACTS,
    fact_of,
    is_of_evaluation,
    is_of_no_use,
    is_score,
    is_timing,
    metric_of,
    plain,
)
from foreign.readers.rows import is_metric_row, is_trainer_summary, row_values
from foreign.readers.settings import EXAMPLE_KEY, UNFILLED, is_command, settings_of
from foreign.readers.statement import Citation, Fact, Scalar, Statement
from foreign.readers.text import finite, number_of
from foreign.readers.view import ForeignScore, MetricRow
from schemas.problems import Lines, pointer_to

Path = tuple[str | int, ...]

MEAN_NOTE = "The Hugging Face Trainer's train_loss is the mean over the whole run, not the loss of its last step."

_OTHERS = re.compile(
    r"(?:^|_)(?:baseline|base_eval|before|previous|reference|parent|teacher|judge|search_space|sweep_config|tokenizer|"
    r"dependencies|packages|requirements)(?:_|$)"
)
"""Groups that speak of something else than this run."""

_NO_GROUP = {
    *("metrics", "results", "result", "scores", "summary", "evaluation", "eval", "scorecard", "final"),
    *("checkpoints", "history", "log_history", "evaluations", "per_checkpoint"),
}
"""Groups that add nothing to the name of a score."""

_CHECKPOINT = re.compile(r"(?:checkpoint|ckpt|step|epoch|iter)[-_ ]?\d+", re.IGNORECASE)

_PRETRAINED = re.compile(r"\bpretrained=([^,\s]+)")

_ROW_KEYS = {"step", "epoch", "checkpoint"}

_OF_THE_TRAINER = re.compile(r"^(?:all|train|eval|predict|test)_results\.json$")
"""Summaries of the Hugging Face Trainer; all_results.json holds what stands in the others."""

MOST_LEVELS = 40
"""Groups inside each other that are looked into."""


@dataclass
class DocumentWalk:
    """What a document gave, filled while it is walked."""

    file: str
    lines: Lines
    results_too: bool = True
    """Whether results may be read: not from an example or a form."""
    is_evaluation: bool = False
    """Whether the document is of an evaluation, which has a seed, a device and a model of its own."""
    is_model: bool = False
    """Whether the document describes a model, whose types and lengths are not those of a training."""
    facts: list[Fact] = field(default_factory=list)
    metrics: list[MetricRow] = field(default_factory=list)
    scores: list[ForeignScore] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    """What figures of one group give for another one."""
    missing: list[str] = field(default_factory=list)
    """Pointers of results and scores that are null."""
    withheld: int = 0
    """Results that were not read, because the document is a form or an example."""

    def source(self, path: Path) -> Citation:
        """Return the source of a value of the document."""
        pointer = pointer_to(path)
        return Citation(file=self.file, line=self.lines(pointer), pointer=pointer)

    def fact(self, name: str, value: Scalar, path: Path, *, flag: str | None = None, **more: Any) -> None:
        """Add a fact, unless it is a result of a form; of a command line, the flag that states it."""
        if name in RESULTS and not self.results_too:
            self.withheld += 1
            return
        if self.is_model and name.startswith("training."):
            if name != "training.dtype":
                return
            name = "model.dtype"
        groups = [part for part in path[:-1] if isinstance(part, str)]
        if is_of_no_use(name, value):
            name = "device.remark"
        if path and isinstance(path[-1], str) and plain(path[-1]).startswith(("train_", "training_")):
            pass  # A training's, also in the file of an evaluation.
        elif self.is_evaluation or any(is_of_evaluation(group) for group in groups):
            name = OF_EVALUATION.get(name, name)
        source = self.source(path)
        if flag is not None:
            source = replace(source, pointer=pointer_to((*path[:-1], f"--{flag}")))
        self.facts.append(Fact(name=name, value=value, source=source, **more))

    def score(self, name: str, value: float, path: Path, checkpoint: str | None = None) -> None:
        """Add a score, unless the document is a form."""
        if not self.results_too:
            self.withheld += 1
            return
        is_share = not any(word in name for word in ("loss", "perplexity", "bleu", "rouge", "reward"))
        note = "Above 1 without a percent sign; left as it is." if value > 1 and is_share else None
        self.scores.append(
            ForeignScore(name=name, value=value, source=self.source(path), checkpoint=checkpoint, note=note)
        )


def walk(value: Any, found: DocumentWalk, path: Path = (), checkpoint: str | None = None) -> None:
    """Add to `found` what a document, or a part of one, states."""
    if len(path) > MOST_LEVELS:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                _row_or_group(item, found, (*path, index), checkpoint)
        return
    if not isinstance(value, dict):
        return
    _note_arithmetic(value, found, path)
    _note_adapter(value, found, path)
    numbers = row_values(value)
    is_row = is_metric_row(numbers) and "loss" in numbers
    for key, item in _without_backend(value, found, path).items():
        place = (*path, key)
        if isinstance(item, dict | list) or is_command(key, item):
            _walk_group(item, found, place, checkpoint)
        elif not is_row or fact_of(key) != "training.learning_rate":  # Beside a step it is that step's, not the peak.
            _leaf(key, item, found, place, checkpoint, is_summary=is_trainer_summary(value))


def _walk_group(item: Any, found: DocumentWalk, place: Path, checkpoint: str | None) -> None:
    key = str(place[-1])
    if is_command(key, item):
        for name, given, key in settings_of(item):
            found.fact(name, given, place, flag=key)
    elif not _OTHERS.search(plain(key)):
        walk(item, found, place, key if _CHECKPOINT.fullmatch(key) else checkpoint)


def _note_adapter(value: dict[str, Any], found: DocumentWalk, path: Path) -> None:
    """Add the rank of an adapter_config.json, whose key is only `r`, and that a batch was found by trying."""
    if "peft_type" in value and isinstance(value.get("r"), int):
        found.fact("lora.rank", value["r"], (*path, "r"))
    if value.get("auto_find_batch_size") is True:
        place = found.source((*path, "auto_find_batch_size"))
        found.statements.append(Statement(fact="training.batch_is_found", value=True, source=place, kind="declared"))


def _note_arithmetic(value: dict[str, Any], found: DocumentWalk, path: Path) -> None:
    """Add what the figures of one group imply of each other."""
    if not found.results_too:
        return
    numbers = {plain(key): number for key, item in value.items() if (number := _number(item)) is not None}
    groups = "".join(f"{plain(part)}." for part in path if isinstance(part, str) and plain(part) not in _NO_GROUP)
    source = found.source(path) if path else Citation(file=found.file)
    found.statements += [
        *from_counts(numbers, groups, source),
        *from_speeds(numbers, source),
        *from_loss(numbers, groups, source),
        *from_precision(numbers, groups, source),
        *from_parts(value, numbers, groups, source),
        *(_figures(value, found) if not path and _OF_THE_TRAINER.search(found.file) else ()),
    ]


def _figures(value: dict[str, Any], found: DocumentWalk) -> Iterator[Statement]:
    """Yield the figures of a summary of the Hugging Face Trainer, which writes each one to two files."""
    for key, item in value.items():
        number = _number(item)
        if number is not None and fact_of(key) is None:
            yield Statement(fact=f"figure.{key}", value=number, source=found.source((key,)), kind="measured")


def _without_backend(value: dict[str, Any], found: DocumentWalk, path: Path) -> dict[str, Any]:
    """Return a dict without lm-eval's `model`, which is only the kind of backend, and add the model that it was."""
    if not isinstance(arguments := value.get("model_args"), str) or not (named := _PRETRAINED.search(arguments)):
        return value
    found.fact("model.name", named.group(1), (*path, "model_args"))
    return {key: item for key, item in value.items() if key != "model"}


def is_evaluation(value: Any, file: str) -> bool:
    """Return whether a document is of an evaluation: by its name, its folder's, or as lm-eval writes it."""
    config = value.get("config") if isinstance(value, dict) else None
    by_lm_eval = isinstance(config, dict) and "model_args" in config
    if isinstance(value, dict) and is_trainer_summary(value) and not any(is_score(key) for key in value):
        return False  # The row of a training, whatever its file is called.
    return by_lm_eval or any(is_of_evaluation(part) for part in file.rpartition(".")[0].split("/")[-2:])


def is_model(value: Any) -> bool:
    """Return whether a document is a model's `config.json`, by its keys."""
    return isinstance(value, dict) and ("architectures" in value or "model_type" in value)


def _row_or_group(item: dict[str, Any], found: DocumentWalk, path: Path, checkpoint: str | None) -> None:
    """Read one item of a list: a row with a step, a checkpoint's scores, or just a group."""
    label = next((f"{key} {item[key]}" for key in item if plain(key) in _ROW_KEYS), checkpoint)
    values = row_values(item)
    scores = {key for key in item if is_score(key)}
    if is_metric_row(values) and not is_trainer_summary(item):
        if not found.results_too:
            found.withheld += 1
        elif any(
            name not in {"step", "epoch"} and metric_of(name) not in {metric_of(key) for key in scores}
            for name in values
        ):
            found.metrics.append(MetricRow(values=values, source=found.source(path)))
        for key in item:
            if key in scores and isinstance(item[key], int | float):
                _leaf(key, item[key], found, (*path, key), label, is_summary=False)
            elif isinstance(item[key], dict):
                walk(item[key], found, (*path, key), label)
        return
    walk(item, found, path, label)


def _leaf(key: str, value: Any, found: DocumentWalk, path: Path, checkpoint: str | None, *, is_summary: bool) -> None:
    groups = [part for part in path[:-1] if isinstance(part, str)]
    if any(EXAMPLE_KEY.search(plain(part)) for part in (*groups, key)):
        return
    name = fact_of(key, groups[-1] if groups else None)
    if value is None:
        if is_score(key) or name in RESULTS:
            found.missing.append(pointer_to(path))
        return
    in_scores = bool(groups) and (plain(groups[-1]) == "scores" or plain(groups[-1]).endswith("_scores"))
    number = _number(value)
    is_figure = is_score(key) or in_scores or (is_summary and key.startswith("eval_"))
    if number is not None and is_figure and not is_timing(key):
        found.score(_score_name(groups, key), number, path, checkpoint)
    elif is_summary and plain(key) in ("train_loss", "training_loss") and number is not None:
        found.fact("result.mean_loss", number, path, note=MEAN_NOTE)
    elif key.startswith("eval_") and "loss" in key and number is not None:
        found.score(_score_name(groups, key), number, path, checkpoint)
    elif name is not None:
        _fact(name, value, found, path, is_of_checkpoint=checkpoint is not None)


def _fact(name: str, value: Any, found: DocumentWalk, path: Path, *, is_of_checkpoint: bool) -> None:
    if is_of_checkpoint and name.startswith(("result.", "training.steps", "training.epochs")):
        return  # It is shown of one checkpoint, not of the run.
    if name in TEXT_FACTS:
        if isinstance(value, str) and value.strip() and not UNFILLED.search(value):
            found.fact(name, value.strip(), path)
        return
    number = _number(value)
    if number is None:
        return
    note = "Nobody says which loss this is: of the last step, the best, or a mean." if name == "result.loss" else None
    found.fact(name, number, path, note=note)


def _number(value: Any) -> int | float | None:
    """Return a finite number, or the one that a text is (YAML reads `1e-5` as text)."""
    if isinstance(value, str):
        value = number_of(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(value)


def _score_name(groups: list[str], key: str) -> str:
    kept = [plain(part) for part in groups if plain(part) not in _NO_GROUP and not _CHECKPOINT.fullmatch(part)]
    variant = key.partition(",")[2]
    return ".".join([*kept, plain(key.partition(",")[0]), *([plain(variant)] if variant and variant != "none" else [])])
