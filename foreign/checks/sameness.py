"""When two places state the same fact, and when they speak of two: an honest folder states many things of one name.

A base model and the model that came of it, a setting of the training and one of its data, the types of weights and of
computing: where a source does not state which is meant, nothing is compared with it.
"""

from __future__ import annotations

import math
import re

from evidence.registry import published_parameters_by_short_name
from foreign.readers.keys import plain
from foreign.readers.statement import Scalar, Statement
from foreign.readers.text import agree, decimals

SECONDS_MAY_DIFFER = 0.1
"""Share by which two durations of one run may differ: clocks start and stop at different moments."""

EPOCHS_MAY_DIFFER = 0.02
"""Share by which two counts of epochs may differ: one counts batches, the other steps."""

_MAY_DIFFER_BY = {"model.parameters": 2.5, "model.trainable_parameters": 1.02}
"""By which factor counts of parameters may differ: with adapters and without, packed in four bits and not."""

_WRITTEN_AT_THE_END = {"trainer_state.json", "all_results.json", "train_results.json", "eval_results.json"}
"""Files of the Hugging Face Trainer whose `epoch` is where the training ended."""

_STATUS = {
    **dict.fromkeys(("completed", "complete", "finished", "succeeded", "success", "done", "ok"), "finished"),
    **dict.fromkeys(("failed", "error", "failure", "crashed", "aborted", "killed"), "failed"),
}

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
    *("training.sequence_length", "dataset.rows", "result.best_loss", "result.tokens_seen"),
}
"""Facts whose keys mean different things: a run's name and its version, GPUs of a machine and processes of a run."""

_KEY_OF_A_LINE = {"training.batch_size": "batch_size"}
"""What a line of a log means that states such a fact, where its words are known."""

_OF_THE_TRAINING = {
    *("training", "train", "trainer", "training_args", "training_arguments", "args", "arguments", "config"),
    *("hyperparameters", "hparams", "params", "parameters", "settings", "optimizer", "optim", "scheduler", "run"),
    "init_args",
    *("value", "metrics", "results", "result", "summary", "final", "model", "batch"),
}
"""Groups whose values are of the training as a whole; another group (`data`, `critic`, `stage_1`) speaks for itself."""

_LOADED = re.compile(r"base|pretrained|name_or_path")
"""Keys that name the model that was loaded. Under others it may be the one that came of it."""

_FAMILIES = (
    *("gpt2", "gptneo", "gptj", "gemma", "llama", "mistral", "mixtral", "qwen", "pythia", "smollm", "falcon", "bloom"),
    *("mamba", "deepseek", "granite", "stablelm", "gpt35", "gpt4", "gpt5", "claude", "gemini"),
)
"""Families of models whose names are part of no other word; distilgpt2 is of GPT-2's."""

_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?[bm]|medium|large|xl)(?![a-z0-9])")


def same_fact(one: Statement, two: Statement) -> bool:
    """Return whether two statements of a fact agree; False where one of them cannot be compared."""
    return is_comparable(one) and is_comparable(two) and not contradict(one, two)


def is_comparable(statement: Statement) -> bool:
    """Return whether a statement states something that another one could contradict."""
    if statement.fact == "training.epochs_done" and not statement.is_range:
        # Elsewhere `epoch` may be that of a row or of a checkpoint.
        return statement.source.file.rpartition("/")[2] in _WRITTEN_AT_THE_END
    # Of the last step that was logged there.
    last_logged = statement.fact == "result.last_loss" and statement.how == "inferred"
    return not last_logged and _normal(statement) is not None


def contradict(one: Statement, two: Statement) -> bool:
    """Return whether two statements that can be compared are of the same thing and differ."""
    name = one.fact
    if not one.scope.may_be(two.scope):
        return False
    if one.is_range or two.is_range:
        return all(each.is_range or not _subject_of(each)[0] for each in (one, two)) and _apart(one, two)
    if name.startswith("score."):
        return not same_score(_figure(one), _figure(two))
    if name.startswith("figure.") and " at step " in name:
        return not same_score(_figure(one), _figure(two))
    if name == "evaluation.items":
        return _figure(one) != _figure(two)
    if _subject_of(one) != _subject_of(two):
        return False
    if name == "result.train_seconds" and _is_of_one_clock(one) and _is_of_one_clock(two):
        return not agree(_figure(one), _figure(two))
    if name == "model.name" and not (_is_loaded(one) and _is_loaded(two)):
        return _are_other_models(str(_normal(one)), str(_normal(two)))
    return not _same(name, _normal(one), _normal(two))


def same_score(one: float, other: float) -> bool:
    """Return whether two scores can be the same, one of them rounded, or stated in percent.

    Example:
        >>> same_score(0.8125, 81.3), same_score(0.81, 0.97), same_score(0.8125, 0.81)
        (True, False, True)
    """
    if agree(one, other):
        return True
    small, large = sorted((one, other), key=abs)
    return abs(small) <= 1 < abs(large) and agree(large / 100, small, decimals_stated=decimals(large) + 2)


def _apart(one: Statement, two: Statement) -> bool:
    """Return whether no number lies in the ranges of both statements; a number is as wide as its last digit."""
    if (
        one.is_range
        and two.is_range
        and one.told
        and two.told
        and not (one.kind == "measured") ^ (two.kind == "measured")
    ):
        return False  # Both were worked out of rows: their slack is a guess twice.
    (low, high), (least, most) = _ends(one), _ends(two)
    return high < least or most < low


def _ends(statement: Statement) -> tuple[float, float]:
    if statement.is_range:
        low, high = statement.low, statement.high
        return -math.inf if low is None else low, math.inf if high is None else high
    value = _figure(statement)
    if statement.fact == "training.epochs_planned":
        value = math.ceil(value)
    slack = 0.5 * 10.0 ** -decimals(value) if decimals(value) else 1e-9 * abs(value)
    return value - slack, value + slack


def _figure(statement: Statement) -> float:
    value = statement.value
    return math.nan if value is None or isinstance(value, str) else float(value)


def _subject_of(fact: Statement) -> tuple[str, str]:
    """Return which of the things of this name a fact is about: by its group, and by its key where keys differ."""
    name = fact.fact
    group, _, key = (fact.source.pointer or "").rpartition("/")
    group = plain(group.rpartition("/")[2])
    of_group = "" if not name.startswith(("training.", "result.", "run.status")) or group in _OF_THE_TRAINING else group
    if group.isdigit() or fact.source.file.endswith("trainer_state.json"):
        of_group = ""  # An item of a list, and a document of known shape.
    return of_group, (plain(key) or _key_of_a_line(fact)) if name in _BY_KEY else ""


def _key_of_a_line(fact: Statement) -> str:
    """Return the key of a statement that has no place in a document; a card calls the seed of its training so."""
    is_seed_of_card = fact.fact == "training.seed" and fact.kind == "remark"
    return "seed" if is_seed_of_card else _KEY_OF_A_LINE.get(fact.fact, "")


def _same(name: str, left: Scalar | frozenset[str] | None, right: Scalar | frozenset[str] | None) -> bool:
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return bool(left & right)
    if name == "training.schedule" and isinstance(left, str) and isinstance(right, str):
        return left.startswith(right) or right.startswith(left)
    if isinstance(left, str) and isinstance(right, str):
        return left == right or (name == "code.commit" and (left.startswith(right) or right.startswith(left)))
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return left == right
    if name == "result.train_seconds":
        return abs(left - right) <= SECONDS_MAY_DIFFER * max(abs(left), abs(right))
    if name == "training.epochs_done":
        return abs(left - right) <= EPOCHS_MAY_DIFFER * max(1.0, abs(left), abs(right))
    if name in _MAY_DIFFER_BY:
        return max(left, right) <= _MAY_DIFFER_BY[name] * min(left, right)
    if name == "training.epochs_planned":
        return math.ceil(left) == math.ceil(right)  # The Hugging Face Trainer states parts of an epoch as a whole one.
    return agree(left, right) if name.startswith("result.") else abs(left - right) <= 1e-9 * max(abs(left), abs(right))


def _normal(fact: Statement) -> Scalar | frozenset[str] | None:
    """Return a value in the form in which it can be compared; None where it cannot, a path instead of a name."""
    name, value = fact.fact, fact.value
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if name.startswith("device.") and name != "device.model":
        return _platforms(text) or None
    if name in ("training.dtype", "training.mixed_precision"):
        text = text.removeprefix("torch.").removeprefix("jnp.")
        return _DTYPES.get(text, text)
    if name == "training.optimizer":
        match = _OPTIMIZERS.match(text)
        return match.group(1) if match else text
    if name == "training.schedule":
        return text.removeprefix("schedulertype.")
    if name == "run.status":
        return _STATUS.get(text)
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


def _is_of_one_clock(statement: Statement) -> bool:
    """Return whether a duration is the one that the Hugging Face Trainer measured, which it writes to several files."""
    return (statement.source.pointer or "").endswith("/train_runtime")


def _is_loaded(fact: Statement) -> bool:
    return _LOADED.search(plain((fact.source.pointer or "").rpartition("/")[2])) is not None


def _are_other_models(one: str, two: str) -> bool:
    """Return whether neither of two models can have come of the other: another family, or another size.

    Example:
        >>> _are_other_models("gpt2", "gpt2-math-sft"), _are_other_models("gpt2", "gemma-2b")
        (False, True)
        >>> _are_other_models("gpt2", "gpt2-xl")
        True
    """
    published = {published_parameters_by_short_name(one), published_parameters_by_short_name(two)}
    if None not in published and len(published) > 1:
        return True
    families = [{family for family in _FAMILIES if family in re.sub(r"[-_.]", "", name)} for name in (one, two)]
    sizes = [set(_SIZE.findall(name)) for name in (one, two)]
    return any(left and right and not left & right for left, right in (families, sizes))
