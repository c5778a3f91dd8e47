"""From the names that tools and people give to things, to ours.

A name that could mean two things maps to none, or to a name that says so (`result.loss` is a loss of which nobody
says which).
"""

from __future__ import annotations

import re
from types import MappingProxyType

_TABLE = """
model.name = model model_id model_name model_name_or_path base_model base_model_name base_model_id
    base_model_name_or_path model_path pretrained_model pretrained_model_name_or_path _name_or_path model.id
    model.name model.model_id model.base
model.revision = model_revision model.revision
model.parameters = total_params total_parameters num_parameters n_params model.parameters num_params
model.trainable_parameters = trainable_params trainable_parameters model.trainable_parameters
    number_of_trainable_parameters
dataset.name = dataset dataset_name dataset_id train_dataset dataset_key dataset.name dataset.id data.dataset
dataset.rows = train_samples num_examples num_train_examples train_size n_train training_samples dataset.rows
    dataset.size
evaluation.set = eval_set evalset eval_dataset
evaluation.items = n_items eval_samples num_eval_examples n_examples total_examples
evaluation.scored = n_scored num_scored scored
training.steps_planned = num_steps max_steps total_steps training_steps num_train_steps num_training_steps
    train_steps steps_planned total_optimization_steps training.steps steps
training.step = step global_step
training.steps_done = steps_done steps_completed completed_steps final_step last_step
    num_steps_completed
training.epochs_planned = num_train_epochs num_epochs epochs
training.epochs_done = epoch
training.sequence_length = max_seq_length max_seq_len seq_length seq_len sequence_length max_length context_length
    max_sequence_length block_size
training.batch_size = batch_size train_batch_size
training.microbatch_size = per_device_batch_size per_device_train_batch_size micro_batch_size
    instantaneous_batch_size_per_device
training.effective_batch_size = effective_batch_size total_batch_size global_batch_size total_train_batch_size
training.accumulation_steps = gradient_accumulation_steps grad_accum grad_accum_steps accumulation_steps
    grad_accumulation
training.optimizer = optimizer optim optimizer.name optimizer_name
training.learning_rate = learning_rate lr peak_lr
training.schedule = lr_scheduler_type scheduler lr_schedule schedule
training.method = method training_method finetuning_type finetune_method peft_type algorithm
training.mixed_precision = mixed_precision
training.dtype = dtype precision compute_dtype
model.dtype = torch_dtype
training.seed = seed random_seed
training.loop = framework
device.kind = accelerator device device_name device_type device_kind hardware tpu_type active_device using_device
    device_used
device.gpu = gpu gpu_name gpu_model gpu_type
device.platform = device_platform backend jax_backend default_backend
device.count = device_count num_devices n_devices gpu_count num_gpus n_gpus world_size
code.commit = commit commit_sha git_commit git_sha git_hash commit_hash git_revision code_commit git.commit
    code.commit sha
run.id = run_id run_name run_version experiment_name
run.status = status run_status
run.command = command cmd
run.started_at = started_at start_time train_start startedat
run.finished_at = finished_at end_time completed_at train_end
result.last_loss = final_loss last_loss final_train_loss final_training_loss train_loss_final loss_final
result.mean_loss = mean_loss avg_loss average_loss average_train_loss mean_train_loss avg_train_loss
result.best_loss = best_loss min_loss lowest_loss minimum_loss
result.first_loss = first_loss initial_loss start_loss starting_loss
result.loss = loss train_loss training_loss
result.best_metric = best_metric
result.train_seconds = train_runtime training_time_seconds train_seconds training_seconds train_time_s
run.wall_seconds = _runtime runtime_seconds duration_seconds
result.tokens_seen = num_input_tokens_seen tokens_seen total_tokens num_tokens
result.peak_memory_gb = peak_memory_gb peak_gpu_memory_gb max_memory_allocated_gb
"""

_NAMES: dict[str, list[str]] = {}
for _name, _keys in re.findall(r"^(\S+) = ((?:.+\n)(?: .+\n)*)", _TABLE, re.MULTILINE):
    _NAMES[_name] = _keys.split()

FACT_OF_KEY = MappingProxyType({key: name for name, keys in _NAMES.items() for key in keys})
"""Our name of a key, written with underscores; `group.key` where the key alone would not say it."""

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

RESULTS = frozenset(name for name in _NAMES if name.startswith("result.")) | {"evaluation.scored"}
"""Facts that only a run can give; none is read from a template."""

_ABOVE_NOTHING = {
    *("training.steps_planned", "training.epochs_planned", "training.sequence_length", "training.accumulation_steps"),
    *("training.batch_size", "training.microbatch_size", "training.effective_batch_size", "device.count"),
}
_NOT_BELOW_NOTHING = {"dataset.rows", "evaluation.items", "evaluation.scored", "training.steps_done", "training.seed"}
_NO_CHOICE = {"auto", "none", "null", "default", "unknown", "n/a", "no"}

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

_OF_GROUP = {"model", "dataset", "data", "optimizer", "git", "code", "training"}


def plain(key: str) -> str:
    """Return a key in lower case with underscores: `Grad Norm` becomes `grad_norm`, `pass@1` `pass_at_1`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", key).replace("@", "_at_")
    return re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_ ").lower() if not key.startswith("_") else key.lower()


def fact_of(key: str, group: str | None = None) -> str | None:
    """Return our name of the fact that a key states inside a group, None where it says none of ours.

    Example:
        >>> fact_of("max_steps"), fact_of("name", "model"), fact_of("name"), fact_of("notes")
        ('training.steps_planned', 'model.name', None, None)
    """
    key = plain(key)
    if group is not None and plain(group) in _OF_GROUP and (name := FACT_OF_KEY.get(f"{plain(group)}.{key}")):
        return name
    return FACT_OF_KEY.get(key)


def is_set(name: str, value: str | float) -> bool:
    """Return whether a value states something: `max_steps: -1` and `precision: auto` say that nobody chose.

    Example:
        >>> is_set("training.steps_planned", -1), is_set("dataset.rows", 0), is_set("training.optimizer", "auto")
        (False, True, False)
    """
    if isinstance(value, str):
        return value.strip().lower() not in _NO_CHOICE
    return not (name in _ABOVE_NOTHING and value <= 0) and not (name in _NOT_BELOW_NOTHING and value < 0)


def is_of_evaluation(name: str) -> bool:
    """Return whether a name of a group, a file or a heading says that an evaluation is spoken of.

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
    if re.match(r"(?:train|training)[/ .]", key):
        name = plain(re.split(r"[/ .]", key, maxsplit=1)[1])
    if _RATE_OF_LIGHTNING.fullmatch(name):
        return "learning_rate"
    return METRIC_KEYS.get(name, name)


def is_score(key: str) -> bool:
    """Return whether a key names a score; those of lm-eval (`exact_match,strict-match`) do too, errors do not.

    Example:
        >>> is_score("eval_accuracy"), is_score("exact_match,strict-match"), is_score("accuracy_stderr"), is_score("n")
        (True, True, False, False)
    """
    name = plain(key.partition(",")[0])
    for prefix in ("eval_", "test_", "val_", "final_", "overall_", "mean_", "avg_", "best_"):
        if name.removeprefix(prefix) in SCORE_KEYS:
            return True
    return name in SCORE_KEYS
