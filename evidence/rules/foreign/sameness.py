"""When two places state the same fact, and when they speak of two: an honest folder says many things of one name.

A base model and the model that came of it, a setting of the training and one of its data, the types of weights and of
computing: where a source does not say which is meant, nothing is held against it.
"""

from __future__ import annotations

import math
import re

from evidence.records.foreign.keys import plain
from evidence.records.foreign.numbers import agree
from evidence.records.foreign.view import Fact, Scalar

SECONDS_MAY_DIFFER = 0.1
"""Share by which two durations of one run may differ: clocks start and stop at different moments."""

_PLATFORMS = {
    "tpu": ("tpu",),
    "gpu": ("gpu", "cuda", "nvidia", "rtx", "tesla", "t4", "p100", "a100", "h100", "l4"),
    "cpu": ("cpu",),
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}
_OPTIMIZERS = re.compile(r"^(?:paged_)?(adamw|adam|adafactor|sgd|lion|lamb)")
_FILE = re.compile(r"\.(?:jsonl?|csv|tsv|parquet|arrow|txt|ya?ml|zip|gz)$")

_BY_KEY = {
    *("run.id", "training.batch_size", "training.method", "training.dtype", "training.seed", "device.count"),
    *("training.sequence_length", "dataset.rows", "result.best_loss"),
}
"""Facts whose keys mean different things: a run's name and its version, GPUs of a machine and processes of a run."""

_KEY_OF_A_LINE = {"training.batch_size": "batch_size"}
"""What a line of a log means that states such a fact, where its words are known."""

_OF_THE_TRAINING = {
    *("training", "train", "trainer", "training_args", "training_arguments", "args", "arguments", "config"),
    *("hyperparameters", "hparams", "params", "parameters", "settings", "optimizer", "optim", "scheduler", "run"),
    *("value", "metrics", "results", "result", "summary", "final", "model", "batch"),
}
"""Groups whose values are of the training as a whole; another group (`data`, `critic`, `stage_1`) speaks for itself."""

_LOADED = re.compile(r"base|pretrained|name_or_path")
"""Keys that name the model that was loaded. Under others it may be the one that came of it."""

_FAMILIES = (
    *("gpt2", "gptneo", "gptj", "gemma", "llama", "mistral", "mixtral", "qwen", "pythia", "smollm", "falcon", "bloom"),
    *("mamba", "deepseek", "granite", "stablelm"),
)
"""Families of models whose names are part of no other word; distilgpt2 is of GPT-2's."""

_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?[bm]|medium|large|xl)(?![a-z0-9])")


def same_fact(name: str, one: Fact, two: Fact) -> bool:
    """Return whether two facts of a name state the same; False where one of them cannot be compared."""
    return is_comparable(name, one) and is_comparable(name, two) and not contradict(name, one, two)


def is_comparable(name: str, fact: Fact) -> bool:
    """Return whether a fact says something that another one could contradict."""
    last_logged = name == "result.last_loss" and fact.how == "inferred"  # Of the last step that was logged there.
    return not last_logged and _normal(name, fact) is not None


def contradict(name: str, one: Fact, two: Fact) -> bool:
    """Return whether two facts of a name that can be compared are of the same thing and state it differently."""
    if _meant(name, one) != _meant(name, two):
        return False
    if name == "model.name" and not (_is_loaded(one) and _is_loaded(two)):
        return _are_other_models(str(_normal(name, one)), str(_normal(name, two)))
    return not _same(name, _normal(name, one), _normal(name, two))


def _meant(name: str, fact: Fact) -> tuple[str, str]:
    """Return which of the things of this name a fact is about: by its group, and by its key where keys differ."""
    group, _, key = (fact.source.pointer or "").rpartition("/")
    group = plain(group.rpartition("/")[2])
    of_group = "" if not name.startswith(("training.", "result.")) or group in _OF_THE_TRAINING else group
    if group.isdigit() or fact.source.file.endswith("trainer_state.json"):
        of_group = ""  # An item of a list, and a document of known shape.
    return of_group, (plain(key) or _KEY_OF_A_LINE.get(name, "")) if name in _BY_KEY else ""


def _same(name: str, left: Scalar | frozenset[str] | None, right: Scalar | frozenset[str] | None) -> bool:
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return bool(left & right)
    if isinstance(left, str) and isinstance(right, str):
        return left == right or (name == "code.commit" and (left.startswith(right) or right.startswith(left)))
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return left == right
    if name == "result.train_seconds":
        return abs(left - right) <= SECONDS_MAY_DIFFER * max(abs(left), abs(right))
    if name == "training.epochs_planned":
        return math.ceil(left) == math.ceil(right)  # The Hugging Face Trainer states parts of an epoch as a whole one.
    return agree(left, right) if name.startswith("result.") else abs(left - right) <= 1e-9 * max(abs(left), abs(right))


def _normal(name: str, fact: Fact) -> Scalar | frozenset[str] | None:
    """Return a value in the form in which it can be compared; None where it cannot, a path instead of a name."""
    value = fact.value
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if name.startswith("device."):
        return _platforms(text) or None
    if name in ("training.dtype", "training.mixed_precision"):
        text = text.removeprefix("torch.").removeprefix("jnp.")
        return _DTYPES.get(text, text)
    if name == "training.optimizer":
        match = _OPTIMIZERS.match(text)
        return match.group(1) if match else text
    if name == "code.commit":
        return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else None
    if name in ("model.name", "dataset.name"):
        return _short_name(text)
    return text


def _platforms(text: str) -> frozenset[str]:
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])_?device", "", text))
    return frozenset(
        kind for kind, marks in _PLATFORMS.items() if any(word.startswith(mark) for word in words for mark in marks)
    )


def _short_name(text: str) -> str | None:
    """Return a model's or a data set's name without its owner; None for a path or a file."""
    is_path = text.count("/") > 1 or "\\" in text or text.startswith((".", "/", "~"))
    return None if is_path or "checkpoint" in text or _FILE.search(text) else text.rpartition("/")[2]


def _is_loaded(fact: Fact) -> bool:
    return _LOADED.search(plain((fact.source.pointer or "").rpartition("/")[2])) is not None


def _are_other_models(one: str, two: str) -> bool:
    """Return whether neither of two models can have come of the other: another family, or another size.

    Example:
        >>> _are_other_models("gpt2", "gpt2-math-sft"), _are_other_models("gpt2", "gemma-2b")
        (False, True)
    """
    families = [{family for family in _FAMILIES if family in re.sub(r"[-_.]", "", name)} for name in (one, two)]
    sizes = [set(_SIZE.findall(name)) for name in (one, two)]
    return any(left and right and not left & right for left, right in (families, sizes))
