"""Whether an evaluation may be added to a run that has ended, and in which words it, or an export, is refused."""

from __future__ import annotations

from pathlib import Path

from evidence.run import layout
from schemas.problems.problem import Problem, ProblemError
from trainer.config.tree import Config
from trainer.evaluation.evaluate import is_evaluated
from trainer.evaluation.late_evaluation import manifest_of
from trainer.loop.checkpoint import latest_step


def refuse_another_set(name: str, config: Config, folder: Path) -> None:
    """Refuse to answer another set than the configuration declares: the two would contradict each other."""
    declared = config.evaluation.eval_set
    if declared is not None and name != declared:
        problem = Problem(
            code="TP074",
            severity="error",
            file=str(folder / layout.CONFIG),
            pointer="/evaluation/eval_set",
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
        problem = Problem(
            code="TP075",
            severity="error",
            file=str(folder),
            what=killed
            if manifest["status"] == "running"
            else f"The newest checkpoint is at step {step}; the run did {done} steps.",
            why="The scores of a run are those of its last step.",
            next=f"Continue it, which evaluates at the end: trainproof train --resume {folder} "
            f"--set evaluation.eval_set={config.evaluation.eval_set}.",
        )
        raise ProblemError([problem], exit_code=2)


def refuse_second_evaluation(folder: Path) -> None:
    """Refuse to replace the evaluation of a run, which is evidence; one that was stopped may be completed."""
    if is_evaluated(folder):
        problem = Problem(
            code="TP070",
            severity="error",
            file=str(folder / layout.EVAL_SUMMARY),
            what="The run has been evaluated already.",
            why="An evaluation is evidence; a second one would replace the first.",
            next="Train another run with --set evaluation.eval_set=NAME to use another set.",
        )
        raise ProblemError([problem], exit_code=2)


def no_eval_set(folder: Path) -> Problem:
    """Return the problem of an evaluation without a set."""
    return Problem(
        code="TP071",
        severity="error",
        file=str(folder / layout.CONFIG),
        pointer="/evaluation/eval_set",
        what="The run's configuration names no evaluation set.",
        next="Name one with --eval-set eval_v2, or a JSONL file.",
    )


def told_to_stop(folder: Path, reason: str | None) -> Problem:
    """Return the problem of an evaluation that was told to stop."""
    return Problem(
        code="TP072",
        severity="error",
        file=str(folder),
        what=f"The evaluation was stopped ({reason}); the run is as it was before.",
        next="Run the same command again.",
    )


def export_stopped(target: Path, reason: str) -> Problem:
    """Return the problem of an export that was told to stop."""
    return Problem(
        code="TP049",
        severity="error",
        file=str(target),
        what=f"The export was stopped ({reason}); nothing of it is left.",
        next="Run the same command again.",
    )
