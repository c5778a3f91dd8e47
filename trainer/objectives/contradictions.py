"""What is wrong with a configuration by itself, before a model, a row or a device is looked at."""

from __future__ import annotations

from schemas.formats import join_words
from schemas.problems import Problem, collect_problems, problem_of
from trainer.config.tree import Config
from trainer.data.answers import refused_readers
from trainer.data.buckets import no_buckets
from trainer.data.dev_reasoning.catalog import DATASET_SHARES
from trainer.data.kinds import refused_template
from trainer.model.model import check_precision_conflicts, choose_method
from trainer.objectives import objective_of


def contradictions(config: Config) -> list[Problem]:
    """Return the problems of settings that do not go together, all of them: for `train`, `train --check` and plans."""
    problems = check_precision_conflicts(config)
    with collect_problems(problems):
        choose_method(config)
    with collect_problems(problems):
        objective = objective_of(config)
        if config.data.packing and not objective.can_pack:
            problems.append(cannot_pack(config))
        if objective.updates_per_rollout:
            problems += parts_of_groups(config, objective.sequences_each)
    if config.optimizer.name == "adafactor" and config.optimizer.state != "float32":
        what = f"optimizer.state is {config.optimizer.state} and optimizer.name is adafactor."
        problems.append(problem_of("TP708", file=config.name, pointer="/optimizer/state", what=what))
    problems += [*no_buckets(config), *refused_template(config.data.template, config.name)]
    problems += refused_readers(config.evaluation, config.name, keep_best=config.checkpoint.keep_best)
    if config.data.generated_rows and config.data.dataset not in DATASET_SHARES:
        problems.append(no_generator(config))
    return problems


def no_generator(config: Config) -> Problem:
    """Return the problem of requesting generated rows of a dataset that has no generator."""
    return problem_of(
        "TP013",
        file=config.data.dataset,
        pointer="/data/generated_rows",
        what=(
            f"data.generated_rows is {config.data.generated_rows}; only {join_words(DATASET_SHARES)} have a generator."
        ),
        why=None,
        next="Set data.generated_rows to 0, or train on a built-in dataset.",
    )


def parts_of_groups(config: Config, size: int) -> list[Problem]:
    """Return the problem of a step that holds part of a group of `size` completions on a device."""
    batch = config.batch
    sequences = batch.microbatch_size * batch.accumulation_steps
    if sequences % size == 0:
        return []
    what = (
        f"A step has {sequences} sequences a device (batch.microbatch_size {batch.microbatch_size} times "
        f"batch.accumulation_steps {batch.accumulation_steps}), which is no multiple of the {size} of a group."
    )
    return [problem_of("TP913", file=config.name, pointer="/batch/microbatch_size", what=what)]


def cannot_pack(config: Config) -> Problem:
    """Return the problem of packing under an objective that takes one example a sequence."""
    what = f"data.packing is true, and {config.objective.kind} takes one example a sequence."
    return problem_of("TP079", file=config.name, pointer="/data/packing", what=what)
