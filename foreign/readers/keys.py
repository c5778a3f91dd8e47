"""From the names that tools and people give to things, to ours.

A name that could mean two things maps to none, or to a name that states it (`result.loss` is a loss of which no one
states which).
"""

from __future__ import annotations

import re
from types import MappingProxyType

from foreign.readers.key_table import KEYS_OF_FACT

FACT_OF_KEY = MappingProxyType({key: name for name, keys in KEYS_OF_FACT.items() for key in keys})
"""Our name of a key, written with underscores; `group.key` where the key alone would not state it."""

TEXT_FACTS = frozenset(
    {
        "code.commit",
        "dataset.name",
        "device.gpu",
        "device.kind",
        "device.platform",
        "evaluation.set",
        "model.name",
        "model.revision",
        "run.command",
        "run.finished_at",
        "run.id",
        "run.started_at",
        "run.status",
        "training.dtype",
        "model.dtype",
        "training.loop",
        "training.method",
        "training.mixed_precision",
        "training.optimizer",
        "training.schedule",
    }
)
"""Facts whose value is text; all others are numbers."""

RESULTS = frozenset(name for name in KEYS_OF_FACT if name.startswith("result.")) | {"evaluation.scored"}
"""Facts that only a run can give; none is read from a template."""

_ABOVE_NOTHING = {
    *("training.steps_planned", "training.epochs_planned", "training.sequence_length", "training.accumulation_steps"),
    *("training.batch_size", "training.microbatch_size", "training.effective_batch_size", "device.count"),
    *("training.warmup_steps", "training.warmup_ratio", "training.gradient_clipping"),
}
_NOT_BELOW_NOTHING = {"dataset.rows", "evaluation.items", "evaluation.scored", "training.steps_done", "training.seed"}
_NO_CHOICE = {"auto", "none", "null", "default", "unknown", "n/a", "no"}

_NOT_IN_USE = re.compile(
    r"\b(?:incompatible|unsupported|unavailable|disabled|unused|ignored|fall(?:ing)?[ -]?back|"
    r"not (?:used|in use|supported|compatible|available|working|found|detected)|detected but|no longer)\b",
    re.IGNORECASE,
)
"""Words of a remark that a device was there and did not do the work."""

OF_EVALUATION = MappingProxyType(
    {
        "code.commit": "evaluation.commit",
        "dataset.name": "evaluation.dataset",
        "dataset.rows": "evaluation.items",
        "device.count": "evaluation.device_count",
        "device.gpu": "evaluation.gpu",
        "device.kind": "evaluation.device",
        "device.platform": "evaluation.platform",
        "model.name": "evaluation.model",
        "result.loss": "evaluation.loss",
        "result.train_seconds": "evaluation.seconds",
        "run.finished_at": "evaluation.finished_at",
        "run.started_at": "evaluation.started_at",
        "run.status": "evaluation.status",
        "run.wall_seconds": "evaluation.seconds",
        "training.batch_size": "evaluation.batch_size",
        "training.dtype": "evaluation.dtype",
        "training.microbatch_size": "evaluation.microbatch_size",
        "training.seed": "evaluation.seed",
        "training.sequence_length": "evaluation.sequence_length",
    }
)
"""What a fact is called where an evaluation states it: its seed, its device, the model that it was given."""

_EVALUATION = re.compile(
    r"(?:^|[^a-z])(?:(?:lm_?)?eval|evaluat(?:e|ed|ion|ions)|generation|sampling|inference|decoding|tests?|testing|val|"
    r"validation|predict|predictions?)(?:[^a-z]|$)"
)

_SCORES = """
accuracy exact_match em f1 f1_score score primary_score eval_score answer_correctness correctness pass_at_1
pass_rate success_rate bleu rouge1 rouge2 rougel rouge_l mean_reward reward_mean perplexity avg_score
bleu_1 bleu_2 bleu_3 bleu_4 rouge_1 rouge_2
average_score mean_score overall_score format_compliance format_accuracy win_rate partial_accuracy acc
acc_norm answer_accuracy overall_accuracy token_accuracy bertscore meteor mrr auc
"""
SCORE_KEYS = frozenset(_SCORES.split())
"""Names of scores."""

_BY_A_GRADER = """
accuracy acc answer_accuracy overall_accuracy final_accuracy answer_correctness pass_at_1 pass_rate success_rate
"""
_LETTER_FOR_LETTER = "exact_match em"
SHARES_OF_RIGHT_ANSWERS = MappingProxyType(
    dict.fromkeys(_BY_A_GRADER.split(), "by a grader") | dict.fromkeys(_LETTER_FOR_LETTER.split(), "letter for letter")
)
"""Scores that are the share of answers that are right, over all items, and by whose judgement."""

_TIMING = re.compile(
    r"(?:^|_)(?:runtime|run_time|samples|steps|seconds|time|duration|per_second|per_sec|tokens|flos|batch_size|epoch|"
    r"throughput|elapsed|latency|memory|num_examples|count)(?:_|$)"
)
"""Words of names that state how long or how much, not how well."""

METRIC_KEYS = MappingProxyType(
    {
        "lr": "learning_rate",
        "learningrate": "learning_rate",
        "gradnorm": "grad_norm",
        "gradient_norm": "grad_norm",
        "g_norm": "grad_norm",
        "train_loss": "loss",
        "loss_step": "loss",
        "train_loss_step": "loss",
        "loss_epoch": "mean_loss",
        "train_loss_epoch": "mean_loss",
        "val_loss_step": "eval_loss",
        "val_loss_epoch": "eval_loss",
        "training_loss": "loss",
        "val_loss": "eval_loss",
        "valid_loss": "eval_loss",
        "validation_loss": "eval_loss",
        "test_loss": "eval_loss",
        "global_step": "step",
        "current_steps": "step",
        "iter": "step",
        "iteration": "step",
        "_step": "step",
        "train_step": "step",
        "tokens_per_sec": "tokens_per_second",
        "tok_s": "tokens_per_second",
        "ppl": "perplexity",
    }
)
"""Our name of a measured value, where it differs from the source's."""

_RATE_OF_LIGHTNING = re.compile(r"lr_(?:adam|sgd|adafactor|lion|lamb|rmsprop)\w*")
"""`lr-AdamW`, as the learning rate monitor of Lightning calls it."""

BEST_OF_EVALUATION = re.compile(
    rf"best_(?P<rest>(?:eval|val|valid|validation|dev|test)_(?:{'|'.join(sorted(SCORE_KEYS))}|loss))"
)
"""The best value of several evaluations: `best_val_loss`, `best_eval_accuracy`."""

_OF_GROUP = {"model", "dataset", "data", "optimizer", "git", "code", "training", "lora", "peft", "lora_config"}


def plain(key: str) -> str:
    """Return a key in lower case with underscores: `Grad Norm` becomes `grad_norm`, `pass@1` `pass_at_1`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", key).replace("@", "_at_")
    return re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_ ").lower() if not key.startswith("_") else key.lower()


def fact_of(key: str, group: str | None = None) -> str | None:
    """Return our name of the fact that a key states inside a group, None where it states none of ours.

    Example:
        >>> fact_of("max_steps"), fact_of("name", "model"), fact_of("name"), fact_of("notes")
        ('training.steps_planned', 'model.name', None, None)
    """
    key = plain(key)
    if group is not None and plain(group) in _OF_GROUP and (name := FACT_OF_KEY.get(f"{plain(group)}.{key}")):
        return name
    return FACT_OF_KEY.get(key)


def is_set(name: str, value: str | float) -> bool:
    """Return whether a value states something: `max_steps: -1` and `precision: auto` mean that no one chose.

    Example:
        >>> is_set("training.steps_planned", -1), is_set("dataset.rows", 0), is_set("training.optimizer", "auto")
        (False, True, False)
    """
    if isinstance(value, str):
        return value.strip().lower() not in _NO_CHOICE
    return not (name in _ABOVE_NOTHING and value <= 0) and not (name in _NOT_BELOW_NOTHING and value < 0)


def is_of_no_use(name: str, value: object) -> bool:
    """Return whether the name of a device is a remark that it did not do the work.

    Example:
        >>> is_of_no_use("device.gpu", "RTX 5090 (Detected but PyTorch incompatible)"), is_of_no_use("device.gpu", "T4")
        (True, False)
    """
    return name.startswith("device.") and isinstance(value, str) and _NOT_IN_USE.search(value) is not None


def is_of_evaluation(name: str) -> bool:
    """Return whether a name of a group, a file or a heading states that an evaluation is spoken of.

    Example:
        >>> is_of_evaluation("lm_eval"), is_of_evaluation("Running Evaluation"), is_of_evaluation("latest")
        (True, True, False)
    """
    return _EVALUATION.search(name.lower()) is not None


def metric_of(key: str) -> str:
    """Return our name of a measured value: `train/loss` and `training_loss` are `loss`, `eval/loss` is `eval_loss`.

    Example:
        >>> metric_of("train/loss"), metric_of("eval/loss"), metric_of("lr"), metric_of("rewards/format")
        ('loss', 'eval_loss', 'learning_rate', 'rewards_format')
    """
    name = plain(key)
    if re.match(r"(?:train|training|trainer)[/ .]", key):
        name = plain(re.split(r"[/ .]", key, maxsplit=1)[1])
    if _RATE_OF_LIGHTNING.fullmatch(name):
        return "learning_rate"
    return METRIC_KEYS.get(name, name)


def is_timing(key: str) -> bool:
    """Return whether a name is of a time, a speed or a count of an evaluation, which is not a score.

    Example:
        >>> is_timing("eval_runtime"), is_timing("eval_steps_per_second"), is_timing("eval_accuracy")
        (True, True, False)
    """
    return _TIMING.search(plain(key)) is not None


def split_name(key: str) -> str:
    """Return the name of what a row measured with its split under one name: `val_accuracy` is `eval_accuracy`.

    Example:
        >>> split_name("val_accuracy"), split_name("accuracy"), split_name("valid_acc")
        ('eval_accuracy', 'accuracy', 'eval_accuracy')
    """
    name = re.sub(r"^(?:val|valid|validation|dev|evaluation)_", "eval_", key)
    return re.sub(r"(^|_)acc$", r"\1accuracy", name)


def is_score(key: str) -> bool:
    """Return whether a key names a score; those of lm-eval (`exact_match,strict-match`) do too, errors do not.

    Example:
        >>> is_score("eval_accuracy"), is_score("exact_match,strict-match"), is_score("accuracy_stderr"), is_score("n")
        (True, True, False, False)
    """
    name = plain(key.partition(",")[0])
    if BEST_OF_EVALUATION.fullmatch(name):
        return True
    for prefix in ("eval_", "test_", "val_", "predict_", "final_", "overall_", "mean_", "avg_", "best_"):
        if name.removeprefix(prefix) in SCORE_KEYS:
            return True
    return name in SCORE_KEYS
