"""The run that another continues: whether it can be continued so, and what the manifest says of it.

Everything here is read from names and config.yaml; the checkpoint itself is opened when the new run has its folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from evidence.layout import CONFIG
from schemas.problems import Problem, ProblemError
from schemas.words import shown
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation.evaluate import is_evaluated
from trainer.loop.checkpoint import latest_step, no_checkpoint
from trainer.recorder.recorder import unfit_name


def parent_of(resume: Path | None, config: Config) -> dict[str, Any] | None:
    """Return the manifest's group `parent`: the run and step that this one continues from.

    Args:
        resume: folder of the run to continue. None: this one begins anew.
        config: of the run that continues it.

    Raises:
        ProblemError: exit code 2; there is no checkpoint, no step left, or another train state than the new run's.
    """
    if resume is None:
        return None
    step = latest_step(resume)
    if step is None:
        raise ProblemError([no_checkpoint(resume)], exit_code=2)
    problems = unfit_name(resume, "--resume")
    if step >= config.limits.steps:
        problems.append(no_step_left(resume, step, config))
    if (resume / CONFIG).is_file():
        before = load_config(resume / CONFIG)
        problems += [another_state(resume, *change) for change in changes_of_state(before, config)]
    if problems:
        raise ProblemError(problems, exit_code=2)
    return {"run_id": resume.resolve().name, "step": step}


def changes_of_state(before: Config, after: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield what makes the train state of two configurations differ: key, value before, value after."""
    # A model may lie in another folder on the machine where the run is continued.
    if PurePosixPath(before.model.name).name != PurePosixPath(after.model.name).name:
        yield "model.name", before.model.name, after.model.name
    if before.optimizer.name != after.optimizer.name:
        yield "optimizer.name", before.optimizer.name, after.optimizer.name
    elif after.optimizer.name == "adafactor" and bool(before.optimizer.weight_decay) != bool(
        after.optimizer.weight_decay
    ):
        # Adafactor without decay has no place for it in its state.
        yield "optimizer.weight_decay", before.optimizer.weight_decay, after.optimizer.weight_decay
    if before.precision.params != after.precision.params:
        yield "precision.params", before.precision.params, after.precision.params


def no_step_left(resume: Path, step: int, config: Config) -> Problem:
    """Return the problem of a run that has all its steps; it may have been stopped before its evaluation."""
    unasked = config.evaluation.eval_set is not None and not is_evaluated(resume)
    evaluate = f" To answer {config.evaluation.eval_set} as it is: trainproof evaluate {resume}." if unasked else ""
    return Problem(
        code="TP051",
        severity="error",
        file=str(resume),
        what=f"The newest checkpoint is at step {step} and limits.steps is {config.limits.steps}: no step is left.",
        expected=f"limits.steps above {step}",
        why="limits.steps counts from the first step of the first run.",
        next=f"Raise it, as in --set limits.steps={2 * step}.{evaluate}",
    )


def another_state(resume: Path, key: str, before: Any, after: Any) -> Problem:
    """Return the problem of a setting under which the checkpoint is none of the new run."""
    return Problem(
        code="TP052",
        severity="error",
        file=str(resume / CONFIG),
        pointer="/" + key.replace(".", "/"),
        what=f"{key} is {shown(after)}; the run to continue has {shown(before)}.",
        why="A checkpoint holds params and opt_state of one model, optimizer and element type.",
        next=f"Continue it with --set {key}={before}, or leave --resume out to begin anew.",
    )
