"""The run that another continues: whether it can be continued so, and what the new run states of it.

Everything here is read from names, config.yaml and manifest; `loop/restoring.py` opens the checkpoint itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from evidence import layout
from evidence.effective import flatten
from evidence.hashes import hash_entry
from evidence.layout import CONFIG, MANIFEST
from evidence.run import read_run
from schemas.formats import format_value
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.load import load_config
from trainer.config.tree import Config, to_document
from trainer.evaluation.recorded import is_evaluated
from trainer.loop.checkpoints import checkpoint_steps, no_checkpoint
from trainer.model.model import choose_method
from trainer.recorder.recorder import Recorder, unfit_name

ROWS_FOLLOW = "These settings determine the rows of every step, including the steps before."


def parent_of(resume: Path | None, config: Config, *, step: int | None = None) -> dict[str, Any] | None:
    """Return the manifest's group `parent`: the run and step that this one continues from.

    Args:
        resume: folder of the run to continue. None: this one begins anew.
        config: of the run that continues it.
        step: of the newest whole checkpoint. None: not known, and the newest is taken for whole; where it leaves no
            step, an earlier one may.

    Raises:
        ProblemError: exit code 2; there is no checkpoint, no step left, or another train state than the new run's.
    """
    if resume is None:
        return None
    steps = checkpoint_steps(resume) if step is None else [step]
    if not steps:
        raise ProblemError([no_checkpoint(resume)], exit_code=2)
    step = steps[0]
    problems = unfit_name(resume, "--resume")
    if steps[-1] >= config.limits.steps:
        problems.append(no_step_left(resume, step, config))
    if (resume / CONFIG).is_file():
        before = load_config(resume / CONFIG)
        problems += [another_state(resume, *change) for change in changes_of_state(before, config)]
        problems += [other_rows(resume, *change) for change in changes_of_rows(before, config)]
    if problems:
        raise ProblemError(problems, exit_code=2)
    link = link_at(resume, step)
    return {"run_id": resume.resolve().name, "step": step, **({} if link is None else {"link": link})}


def link_at(resume: Path, step: int) -> str | None:
    """Return the link of a run's last entry of the chain at a step, or None if it is missing."""
    entries = read_run(resume).rows(layout.CHAIN).values
    return next((hash_entry(entry) for entry in reversed(entries) if entry["step"] == step), None)


def changes_of_state(before: Config, after: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield what makes the train state of two configurations differ: key, value before, value after."""
    # A model may lie in another folder on the machine where the run is continued.
    if PurePosixPath(before.model.name).name != PurePosixPath(after.model.name).name:
        yield "model.name", before.model.name, after.model.name
    if before.model.weights != after.model.weights:
        yield "model.weights", before.model.weights, after.model.weights
    old, new = asdict(before.method), asdict(after.method)
    yield from (
        (f"method.{key}", old[key], new[key]) for key in choose_method(after).shape_keys if old[key] != new[key]
    )
    if before.optimizer.name != after.optimizer.name:
        yield "optimizer.name", before.optimizer.name, after.optimizer.name
    elif after.optimizer.name == "adafactor" and bool(before.optimizer.weight_decay) != bool(
        after.optimizer.weight_decay
    ):
        # Adafactor without decay has no place for it in its state.
        yield "optimizer.weight_decay", before.optimizer.weight_decay, after.optimizer.weight_decay
    if before.optimizer.state != after.optimizer.state:
        yield "optimizer.state", before.optimizer.state, after.optimizer.state
    if before.precision.params != after.precision.params:
        yield "precision.params", before.precision.params, after.precision.params


def changes_of_rows(before: Config, after: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield what makes the rows of a step differ in two configurations: key, value before, value after."""
    if before.seed != after.seed:
        yield "seed", before.seed, after.seed
    keys = ("shuffle", "generated_rows", "max_length", "packing", "buckets", "kind", "supervise", "system_prompt")
    for key in keys:
        if getattr(before.data, key) != getattr(after.data, key):
            yield f"data.{key}", getattr(before.data, key), getattr(after.data, key)


OF_A_STEP = (
    *("model.revision", "method.", "objective.", "optimizer.", "batch.", "precision.compute"),
    *("memory.remat", "memory.layers", "memory.attention", "memory.loss_chunk_tokens", "memory.mlp_chunk_tokens"),
    "mesh.shard_params",
)
"""Beginnings of the keys by which a step computes what it computes, in every bit of it."""


def changes_of_steps(resume: Path, config: Config, devices: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what makes the steps from here on others than those before: `key`, `before` and `after` of each change.

    They are allowed, since a run may have to go on with another device or a lower learning rate, and reported, since no
    run of one configuration would have given what comes of it.

    Args:
        resume: folder of the run to continue.
        config: of the run that continues it.
        devices: the manifest's group `devices` of the run that continues it.
    """
    before = load_config(resume / CONFIG) if (resume / CONFIG).is_file() else config
    old, new = flatten(to_document(before)), flatten(to_document(config))
    keys = [key for key in new if key.startswith(OF_A_STEP)]
    if config.optimizer.schedule != "constant":
        keys.append("limits.steps")  # a schedule ends with the last step
    changes = [{"key": key, "before": old[key], "after": new[key]} for key in keys if old[key] != new[key]]
    manifest = manifest_of(resume)
    if manifest is not None:
        then, now = (f"{found['count']} × {found['kind']}" for found in (manifest["devices"], devices))
        changes += [{"key": "devices", "before": then, "after": now}] if then != now else []
    return changes


def record_parent(recorder: Recorder, resume: Path, config: Config) -> None:
    """Write down what the run goes on from, and what makes its steps others than those before."""
    parent = recorder.manifest["parent"]
    changes = changes_of_steps(resume, config, recorder.manifest["devices"])
    what = f"goes on from step {parent['step']} of {parent['run_id']}"
    if changes:
        named = "; ".join(
            f"{each['key']} was {format_value(each['before'])}, is {format_value(each['after'])}" for each in changes
        )
        what += f", whose steps were computed otherwise: {named}"
    recorder.log("warning" if changes else "info", "continued", what, parent=parent, changes=changes)


def weights_of(resume: Path | None) -> str | None:
    """Return where the parameters of the run to continue first came from, as far as its manifest states it."""
    model = None if resume is None else (manifest_of(resume) or {}).get("model")
    return model["weights"] if model else None


def manifest_of(resume: Path) -> dict[str, Any] | None:
    """Return the manifest of the run to continue, None where there is no valid one."""
    return read_run(resume).manifest


def refuse_other_rows(resume: Path | None, dataset: dict[str, Any], *, batch_size: int) -> None:
    """Refuse to continue a run with a dataset that changed since, or with another number of sequences in a step.

    Args:
        resume: folder of the run to continue. None: this one begins anew.
        dataset: the manifest's group `dataset` of the run that continues it.
        batch_size: of the run that continues it, over all devices.

    Raises:
        ProblemError: exit code 2, with both values.
    """
    manifest = None if resume is None else manifest_of(resume)
    if resume is None or manifest is None:
        return
    problems = []
    if dataset["sha256"] != manifest["dataset"]["sha256"]:
        problems.append(other_dataset(resume, manifest["dataset"], dataset))
    before = (manifest["training"] or {}).get("batch_size", batch_size)
    if before != batch_size:
        problems.append(other_batch(resume, before, batch_size))
    if problems:
        raise ProblemError(problems, exit_code=2)


def no_step_left(resume: Path, step: int, config: Config) -> Problem:
    """Return the problem of a run that has all its steps; it may have been stopped before its evaluation."""
    unasked = config.evaluation.eval_set is not None and not is_evaluated(resume)
    evaluate = f" To answer {config.evaluation.eval_set} as it is: trainproof evaluate {resume}." if unasked else ""
    return problem_of(
        "TP051",
        file=str(resume),
        what=f"The newest checkpoint is at step {step} and limits.steps is {config.limits.steps}: no step is left.",
        expected=f"limits.steps above {step}",
        next=f"Raise it, as in --set limits.steps={2 * step}.{evaluate}",
    )


def another_state(resume: Path, key: str, before: Any, after: Any) -> Problem:
    """Return the problem of a setting under which the checkpoint cannot be the new run's."""
    as_given = format_value(before).strip('"')
    return problem_of(
        "TP052",
        file=str(resume / CONFIG),
        pointer="/" + key.replace(".", "/"),
        what=f"{key} is {format_value(after)}; the run to continue has {format_value(before)}.",
        next=f"Continue it with --set {key}={as_given}, or leave --resume out to begin anew.",
    )


def other_rows(resume: Path, key: str, before: Any, after: Any) -> Problem:
    """Return the problem of a setting under which the steps before would have seen other rows."""
    return problem_of(
        "TP054",
        file=str(resume / CONFIG),
        pointer="/" + key.replace(".", "/"),
        what=f"{key} is {format_value(after)}; the run to continue has {format_value(before)}.",
        next=f"Continue it with --set {key}={format_value(before)}, or leave --resume out to begin anew.",
    )


def other_dataset(resume: Path, before: dict[str, Any], after: dict[str, Any]) -> Problem:
    """Return the problem of a dataset that is not the one that the run to continue read."""
    return problem_of(
        "TP054",
        file=str(resume / MANIFEST),
        pointer="/dataset/sha256",
        what=f"The dataset {after['name']} has {after['rows']} rows with the SHA-256 {after['sha256']}; the run to "
        f"continue read {before['name']}, {before['rows']} rows with the SHA-256 {before['sha256']}.",
        why="Which rows a step sees follows from the dataset for every step of the run, those before too.",
        next="Name the dataset as it was, or leave --resume out to begin anew.",
    )


def other_batch(resume: Path, before: int, after: int) -> Problem:
    """Return the problem of steps with another number of sequences, as on another number of devices."""
    return problem_of(
        "TP054",
        file=str(resume / MANIFEST),
        pointer="/training/batch_size",
        what=f"A step has {after} sequences over all devices; the run to continue has {before}.",
        next=f"Set batch.microbatch_size and batch.accumulation_steps so that with the number of devices they make "
        f"{before}, or leave --resume out to begin anew.",
    )
