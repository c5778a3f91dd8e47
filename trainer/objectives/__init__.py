"""Training objectives: what a row becomes, what a batch is, and the loss.

To add one, subclass `Objective`, register it here, and add its name to `objective.kind` in `train_config.schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.formats import format_value, join_words
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.tree import Config
from trainer.data.answers import check_evaluation_settings
from trainer.data.batches import bucket_lengths
from trainer.data.builtin.reasoning import DATASET_SHARES
from trainer.model.model import check_precision_conflicts, choose_method
from trainer.objectives.dpo import DirectPreference
from trainer.objectives.grpo import GroupPolicy
from trainer.objectives.objective import Objective, unused_settings
from trainer.objectives.supervised import SupervisedLoss

OBJECTIVES: dict[str, Callable[[Config], Objective]] = {
    "supervised": SupervisedLoss.from_config,
    "dpo": DirectPreference.from_config,
    "grpo": GroupPolicy.from_config,
}
"""Constructors by `objective.kind`."""


def build_objective(config: Config) -> Objective:
    """Build the objective; raise `ProblemError` with exit code 2 if it does not use settings or they do not fit it."""
    problems = unused_settings(config)
    with collect_problems(problems):
        objective = OBJECTIVES[config.objective.kind](config)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return objective


def find_contradictions(config: Config) -> list[Problem]:
    """Return all problems of settings that do not go together."""
    problems = check_precision_conflicts(config)

    def add(code: str, pointer: str, what: str, fix: str | None = None) -> None:
        problems.append(problem_of(code, file=config.name, pointer=pointer, what=what, next=fix))

    with collect_problems(problems):
        choose_method(config)
    batch, data = config.batch, config.data
    with collect_problems(problems):
        objective = build_objective(config)
        if data.packing and not objective.can_pack:
            what = f"data.packing is true, but objective.kind {config.objective.kind} needs one example a sequence."
            add("TP079", "/data/packing", what)
        if objective.needs_reference and config.method.adapter is not None:
            add("TP073", "/method/adapter", f"objective.kind is {config.objective.kind}, and method.adapter is set.")
        sequences, size = batch.microbatch_size * batch.accumulation_steps, objective.sequences_each
        if objective.updates_per_rollout and sequences % size:
            what = f"A step has {sequences} sequences per device (batch.microbatch_size {batch.microbatch_size} times "
            what += f"batch.accumulation_steps {batch.accumulation_steps}), which is not a multiple of the group size "
            add("TP913", "/batch/microbatch_size", f"{what}{size}.")
    if config.optimizer.name == "adafactor" and config.optimizer.state != "float32":
        what = f"optimizer.state is {config.optimizer.state}, but optimizer.name is adafactor."
        add("TP708", "/optimizer/state", what)
    if data.buckets > 1 and data.packing:
        what = f"data.buckets is {data.buckets} and data.packing is true: packed sequences have one length."
        add("TP076", "/data/buckets", what, "Set data.buckets to 1, or data.packing to false.")
    elif (most := len(bucket_lengths(data.max_length, data.buckets))) < data.buckets:
        what = f"data.buckets is {data.buckets}, but {data.max_length} tokens have only {most} different lengths."
        add("TP076", "/data/buckets", what, f"Set data.buckets to at most {most}, or raise data.max_length.")
    if data.template is not None and "{prompt}" not in data.template:
        add("TP004", "/data/template", f"data.template is {format_value(data.template)}, without {{prompt}}.")
    problems += check_evaluation_settings(config.evaluation, config.name, keep_best=config.checkpoint.keep_best)
    if data.generated_rows and data.dataset not in DATASET_SHARES:
        what = f"data.generated_rows is {data.generated_rows}; only {join_words(DATASET_SHARES)} have a generator."
        fix, pointer = "Set data.generated_rows to 0, or train on a built-in dataset.", "/data/generated_rows"
        problems.append(problem_of("TP013", file=data.dataset, pointer=pointer, what=what, why=None, next=fix))
    return problems
