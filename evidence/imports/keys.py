"""Classify the keys of other tools' files by the table in `keys.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from evidence.imports.run import Scalar
from evidence.imports.text import finite, parse_number

TABLE: dict[str, Any] = tomllib.loads(files("evidence.imports").joinpath("keys.toml").read_text(encoding="utf-8"))
_FACT_OF_KEY: dict[str, str] = {key: name for name, keys in TABLE["facts"].items() for key in keys}
_METRIC_OF_KEY: dict[str, str] = {key: name for name, keys in TABLE["metrics"].items() for key in keys}

TEXT_FACTS = frozenset(TABLE["kinds"]["text"])
EVALUATION_NAMES: Mapping[str, str] = TABLE["evaluation"]
GRADED, EXACT = frozenset(TABLE["scores"]["graded"]), frozenset(TABLE["scores"]["exact"])
SCORES = GRADED | EXACT | frozenset(TABLE["scores"]["other"])
RESULTS = frozenset(name for name in TABLE["facts"] if name.startswith("result.")) | {"evaluation.scored"}
"""Facts that only a run can give; none is read from a template."""

_SCORE_PREFIX = re.compile(r"^(?:best_)?(?:eval|test|val|predict|final|overall|mean|avg|best|dev|validation|valid)_")
_BEST_LOSS = re.compile(r"best_(?:eval|val|valid|validation|dev|test)_loss")
_UNUSED_DEVICE = re.compile(
    r"\b(?:incompatible|unsupported|unavailable|disabled|unused|ignored|fall(?:ing)?[ -]?back|"
    r"not (?:used|in use|supported|compatible|available|working|found|detected)|detected but|no longer)\b",
    re.IGNORECASE,
)
_LIGHTNING_RATE = re.compile(r"lr_(?:adam|sgd|adafactor|lion|lamb|rmsprop)\w*")
_WORDS = {
    name: re.compile(rf"(?:^|{between})(?:{'|'.join(TABLE['words'][name])})(?:{between}|$)")
    for name, between in (("example", "_"), ("other_subject", "_"), ("timing", "_"), ("evaluation", "[^a-z]"))
}


def plain(key: str) -> str:
    """Write a key in lower case with underscores: `Grad Norm` is `grad_norm`, `pass@1` is `pass_at_1`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", key).replace("@", "_at_")
    return re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_ ").lower() if not key.startswith("_") else key.lower()


def fact_name(key: str, group: str | None = None) -> str | None:
    """Return the fact that a key states inside a group, or None if it states none of ours.

    Example:
        >>> fact_name("max_steps"), fact_name("name", "model"), fact_name("name"), fact_name("notes")
        ('training.steps_planned', 'model.name', None, None)
    """
    key = plain(key)
    if (
        group is not None
        and plain(group) in TABLE["words"]["groups"]
        and (name := _FACT_OF_KEY.get(f"{plain(group)}.{key}"))
    ):
        return name
    return _FACT_OF_KEY.get(key)


def is_set(name: str, value: Scalar) -> bool:
    """Return whether a value states something: `max_steps: -1` and `precision: auto` leave the choice open."""
    if isinstance(value, str):
        return value.strip().lower() not in TABLE["words"]["unset"]
    kinds = TABLE["kinds"]
    return not (name in kinds["positive"] and value <= 0) and not (name in kinds["not_negative"] and value < 0)


def is_unused_device(name: str, value: object) -> bool:
    """Return whether a device name says that the device did not do the work: `RTX 5090 (Detected but ...)`."""
    return name.startswith("device.") and isinstance(value, str) and _UNUSED_DEVICE.search(value) is not None


def is_evaluation(name: str) -> bool:
    """Return whether a group, a file or a heading is named after an evaluation."""
    return _WORDS["evaluation"].search(name.lower()) is not None


def is_example_key(key: str) -> bool:
    """Return whether numbers under a key are targets or examples, not measurements."""
    return _WORDS["example"].search(plain(key)) is not None


def is_other_subject(key: str) -> bool:
    """Return whether a group is not about this run, but about its baseline or its packages."""
    return _WORDS["other_subject"].search(plain(key)) is not None


def metric_name(key: str) -> str:
    """Return our name of a measured value.

    Example:
        >>> metric_name("train/loss"), metric_name("eval/loss"), metric_name("lr"), metric_name("rewards/format")
        ('loss', 'eval_loss', 'learning_rate', 'rewards_format')
    """
    name = plain(key)
    if re.match(r"(?:train|training|trainer)[/ .]", key):
        name = plain(re.split(r"[/ .]", key, maxsplit=1)[1])
    return "learning_rate" if _LIGHTNING_RATE.fullmatch(name) else _METRIC_OF_KEY.get(name, name)


def is_timing(key: str) -> bool:
    """Return whether a name is of a duration, a speed or a count, which is not a score."""
    return _WORDS["timing"].search(plain(key)) is not None


def is_score(key: str) -> bool:
    """Return whether a key names a score, with a split or a filter (`exact_match,strict-match`) or without.

    Example:
        >>> is_score("best_eval_accuracy"), is_score("exact_match,strict-match"), is_score("accuracy_stderr")
        (True, True, False)
    """
    name = plain(key.partition(",")[0])
    return _SCORE_PREFIX.sub("", name) in SCORES or name in SCORES or _BEST_LOSS.fullmatch(name) is not None


def row_values(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a row by our names; text that is a number counts, true and false do not."""
    values: dict[str, float | None] = {}
    # Beside the steps of the training, W&B counts calls of its logger as `_step`, and LitGPT microbatches as `iter`.
    counters = {"_step", "iter", "iteration"}
    has_step = any(key not in counters and metric_name(key) == "step" for key in row)
    for key, value in row.items():
        if key in counters and has_step:
            continue
        number = parse_number(value) if isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            values.setdefault(metric_name(key), finite(number))
        elif value is None and "loss" in metric_name(key):
            values.setdefault(metric_name(key), None)
    return values


def is_metric_row(values: Mapping[str, Any]) -> bool:
    """Return whether numbers are a row of training metrics: a step or an epoch, and something measured there."""
    measured = values.keys() - {"step", "epoch", "time", "timestamp", "wall_time"}
    return bool({"step", "epoch"} & values.keys() and measured)
