"""Whether an evaluation may be added to a run that has ended, and in which words it is refused."""

from __future__ import annotations

from pathlib import Path

from evidence import layout
from evidence.run import read_existing_run
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation.evaluate import is_evaluated
from trainer.evaluation.late_evaluation import manifest_of
from trainer.loop.restoring import latest_step, no_checkpoint


def config_of_run(folder: Path) -> Config:
    """Return the configuration that a run recorded."""
    read_existing_run(folder)
    return load_config(folder / layout.CONFIG)


def refuse_without_checkpoint(folder: Path) -> None:
    """Refuse a run whose parameters are not there, before anything is built for them."""
    if latest_step(folder) is None:
        raise ProblemError([no_checkpoint(folder)], exit_code=2)


def refuse_another_set(name: str, config: Config, folder: Path) -> None:
    """Refuse to answer another set than the configuration declares: the two would contradict each other."""
    declared = config.evaluation.eval_set
    if declared is not None and name != declared:
        problem = problem_of(
            "TP074",
            file=str(folder / layout.CONFIG),
            pointer="/evaluation/eval_set",
            why=None,
            what=f"The run's configuration declares {declared}, and {name} was asked for.",
            next=f"Leave --eval-set out, or train another run with --set evaluation.eval_set={name}.",
        )
        raise ProblemError([problem], exit_code=2)


def refuse_another_step(folder: Path, config: Config) -> None:
    """Refuse to score a checkpoint that is not of the run's last step, as one of a killed run is."""
    manifest = manifest_of(folder)
    step, done = latest_step(folder), (manifest["training"] or {}).get("steps_done")
    if step != done:
        killed = f"The run was killed; its newest checkpoint is at step {step} of {config.limits.steps}."
        problem = problem_of(
            "TP075",
            file=str(folder),
            what=killed
            if manifest["status"] == "running"
            else f"The newest checkpoint is at step {step}; the run did {done} steps.",
            next=f"Continue it, which evaluates at the end: trainproof train --resume {folder} "
            f"--set evaluation.eval_set={config.evaluation.eval_set}.",
        )
        raise ProblemError([problem], exit_code=2)


def refuse_second_evaluation(folder: Path) -> None:
    """Refuse to replace the evaluation of a run, which is evidence; one that was stopped may be completed."""
    if is_evaluated(folder):
        problem = problem_of(
            "TP070",
            file=str(folder / layout.EVAL_SUMMARY),
            what="The run has been evaluated already.",
        )
        raise ProblemError([problem], exit_code=2)


def no_eval_set(folder: Path) -> Problem:
    """Return the problem of an evaluation without a set."""
    return problem_of(
        "TP071",
        file=str(folder / layout.CONFIG),
        pointer="/evaluation/eval_set",
        why=None,
        what="The run's configuration names no evaluation set.",
    )


def evaluation_stopped(folder: Path, reason: str | None) -> Problem:
    """Return the problem of an evaluation that was interrupted."""
    return problem_of(
        "TP072",
        file=str(folder),
        why=None,
        what=f"The evaluation was stopped ({reason}); the run is as it was before.",
    )
