"""Resume runs: check whether one can be resumed with a configuration, and find one for `--resume auto`.

`--resume auto` looks next to the output folder and in attached folders, for example on Kaggle. It takes the newest run
of the same name and mode that is not complete and that `--resume RUN` would accept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from evidence import layout
from evidence.effective import flatten
from evidence.hashes import hash_entry
from evidence.layout import CHECKPOINTS, CONFIG, MANIFEST
from evidence.lock import is_alive
from evidence.run import read_run
from evidence.writing import output_error
from schemas.formats import format_value, quantity
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.load import load_config
from trainer.config.tree import Config, to_document
from trainer.evaluation.recorded import is_evaluated
from trainer.loop.checkpoints import checkpoint_steps, latest_step, missing_checkpoint
from trainer.model.model import choose_method
from trainer.recorder.environment import attached_folder, walk_attached
from trainer.recorder.recorder import Recorder, check_run_name, refuse_folder

AUTO = "auto"
"""Value of `--resume` that searches for a run."""
UNFIT = frozenset({"TP050", "TP051", "TP052", "TP053", "TP054", "TP055"})
"""Problems of a run to resume that are found before anything is written; `--resume auto` then tries the next run."""
NONFINITE = "non_finite"
"""Prefix of failures that would happen again after resuming."""
STEP_KEYS = (
    *("model.revision", "method.", "objective.", "optimizer.", "batch.", "precision.compute"),
    *("memory.remat", "memory.layers", "memory.attention", "memory.loss_chunk_tokens", "memory.mlp_chunk_tokens"),
    "mesh.shard_params",
)
"""Prefixes of the settings that determine the bits of a step."""

DATA_KEYS = ("shuffle", "generated_rows", "max_length", "packing", "buckets", "kind", "supervise")
ROW_KEYS = ("seed", *(f"data.{key}" for key in DATA_KEYS))
"""Settings that determine the rows of a step."""


def read_manifest(resume: Path) -> dict[str, Any] | None:
    """Return the manifest of a run, or None if it is missing or invalid."""
    return read_run(resume).manifest


def read_parent(resume: Path | None, config: Config, *, step: int | None = None) -> dict[str, Any] | None:
    """Return the manifest's group `parent`: the run and step to resume from, by default its newest checkpoint.

    Raises `ProblemError` with exit code 2 if checkpoint or steps are missing, or the configuration does not fit.
    """
    if resume is None:
        return None
    steps = checkpoint_steps(resume) if step is None else [step]
    if not steps:
        raise ProblemError([missing_checkpoint(resume)], exit_code=2)
    step = steps[0]
    problems = check_run_name(resume, "--resume")
    if steps[-1] >= config.limits.steps:
        problems.append(_no_step_left(resume, step, config))
    if (resume / CONFIG).is_file():
        before = load_config(resume / CONFIG)
        problems += [_changed(resume, "TP052", *change) for change in state_changes(before, config)]
        problems += [_changed(resume, "TP054", *change) for change in _differences(before, config, ROW_KEYS)]
    if problems:
        raise ProblemError(problems, exit_code=2)
    entries = read_run(resume).rows(layout.CHAIN).values
    link = next((hash_entry(entry) for entry in reversed(entries) if entry["step"] == step), None)
    return {"run_id": resume.resolve().name, "step": step, **({} if link is None else {"link": link})}


def state_changes(before: Config, after: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield settings that give two configurations different train states: key, value before, value after."""
    # The model's folder may be elsewhere on this machine.
    if PurePosixPath(before.model.name).name != PurePosixPath(after.model.name).name:
        yield "model.name", before.model.name, after.model.name
    keys = ["model.weights", *(f"method.{key}" for key in choose_method(after).shape_keys), "optimizer.name"]
    yield from _differences(before, after, [*keys, "optimizer.state", "precision.params"])
    old, new = before.optimizer, after.optimizer
    # Adafactor has no state for weight decay if there is none.
    if old.name == new.name == "adafactor" and bool(old.weight_decay) != bool(new.weight_decay):
        yield "optimizer.weight_decay", old.weight_decay, new.weight_decay


def _differences(before: Config, after: Config, keys: Iterable[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, value before and value after of the keys whose values differ."""
    old, new = flatten(to_document(before)), flatten(to_document(after))
    yield from ((key, old[key], new[key]) for key in keys if old[key] != new[key])


def record_parent(recorder: Recorder, resume: Path, config: Config) -> None:
    """Log where the run resumes, and which settings of its steps changed.

    A run may have to continue on another device or with a lower learning rate, so changes are allowed and recorded.
    """
    parent, devices = recorder.manifest["parent"], recorder.manifest["devices"]
    before = load_config(resume / CONFIG) if (resume / CONFIG).is_file() else config
    keys = [key for key in flatten(to_document(config)) if key.startswith(STEP_KEYS)]
    if config.optimizer.schedule != "constant":
        keys.append("limits.steps")  # a schedule ends with the last step
    found = list(_differences(before, config, keys))
    if (manifest := read_manifest(resume)) is not None:
        there, here = (f"{group['count']} × {group['kind']}" for group in (manifest["devices"], devices))
        found += [("devices", there, here)] if there != here else []
    message = f"resumed from step {parent['step']} of {parent['run_id']}"
    if found:
        shown = (f"{key} {format_value(old)} → {format_value(new)}" for key, old, new in found)
        message += f" with changed settings: {'; '.join(shown)}"
    changes = [{"key": key, "before": old, "after": new} for key, old, new in found]
    recorder.log("warning" if changes else "info", "continued", message, parent=parent, changes=changes)


def refuse_other_rows(resume: Path | None, dataset: dict[str, Any], *, batch_size: int) -> None:
    """Refuse to resume a run with a changed dataset or batch size (`ProblemError`, exit code 2).

    `dataset` is a group of the new run's manifest; `batch_size` counts sequences per step over all devices.
    """
    manifest = None if resume is None else read_manifest(resume)
    if resume is None or manifest is None:
        return
    problems = list[Problem]()

    def add(pointer: str, what: str, then: str) -> None:
        then += ", or start a new run without --resume."
        problems.append(problem_of("TP054", file=str(resume / MANIFEST), pointer=pointer, what=what, next=then))

    before, size = manifest["dataset"], (manifest["training"] or {}).get("batch_size", batch_size)
    if dataset["sha256"] != before["sha256"]:
        what = f"The dataset {dataset['name']} has {dataset['rows']} rows, SHA-256 {dataset['sha256']}; the run was "
        what += f"trained on {before['name']}, {before['rows']} rows, {before['sha256']}."
        add("/dataset/sha256", what, "Use the same dataset")
    if size != batch_size:
        what = f"A step has {batch_size} sequences over all devices; the run had {size}."
        add("/training/batch_size", what, f"Set batch.microbatch_size and batch.accumulation_steps to give {size} here")
    if problems:
        raise ProblemError(problems, exit_code=2)


def _no_step_left(resume: Path, step: int, config: Config) -> Problem:
    """Return the problem of a run with all its steps; it may have been stopped before its evaluation."""
    what = f"The newest checkpoint is at step {step} and limits.steps is {config.limits.steps}: no step is left."
    then = f"Raise it, as in --set limits.steps={2 * step}."
    if _lacks_evaluation(resume, config):
        then += f" To evaluate it as it is, run trainproof evaluate {resume}."
    return problem_of("TP051", file=str(resume), what=what, expected=f"limits.steps above {step}", next=then)


def _changed(resume: Path, code: str, key: str, before: Any, after: Any) -> Problem:
    """Return the problem of a setting that must be the same as in the run to resume."""
    what = f"{key} is {format_value(after)}; the run to resume has {format_value(before)}."
    then = f"Pass --set {key}={format_value(before).strip(chr(34))}, or start a new run without --resume."
    return problem_of(code, file=str(resume / CONFIG), pointer="/" + key.replace(".", "/"), what=what, next=then)


def find_runs(config: Config, beside: Path) -> tuple[list[Path], list[str]]:
    """Find runs that a configuration can resume, newest first; also return a line for each other run."""
    folders, skipped, others = list[Path](), list[str](), 0
    complete: set[str] = set()  # ids of runs that were resumed and completed
    manifests = {folder: read_manifest(folder) for folder in _run_folders(beside)}

    def started(folder: Path) -> float:
        manifest = manifests[folder]
        return datetime.fromisoformat(manifest["started_at"]).timestamp() if manifest else 0.0

    for folder in sorted(manifests, key=started, reverse=True):
        try:
            before = load_config(folder / CONFIG)
        except ProblemError as error:
            skipped.append(f"skipping {folder}: its configuration cannot be read: {error.problems[0].what}")
            continue
        if (before.name, before.mode) != (config.name, config.mode):
            others += 1
        elif reason := _reason_to_skip(folder, manifests[folder], config, complete):
            skipped.append(f"skipping {folder}: {reason}")
        else:
            folders.append(folder)
    if others:
        counted, wanted = quantity(others, "run"), f"{config.name}, {config.mode}"
        skipped.append(f"skipping {counted} with another name or mode than {wanted}")
    return folders, skipped


def _reason_to_skip(folder: Path, manifest: dict[str, Any] | None, config: Config, complete: set[str]) -> str | None:
    """Return why a run cannot be resumed, or None; adds the parent of a complete run to `complete`."""
    if manifest is None:
        return f"its {MANIFEST} is damaged"
    is_resumed, latest = manifest["run_id"] in complete, latest_step(folder)
    done = max(latest or 0, (manifest["training"] or {}).get("steps_done") or 0)
    if is_resumed or (done >= config.limits.steps and not _lacks_evaluation(folder, config)):
        complete.update({manifest["parent"]["run_id"]} if manifest["parent"] else ())
        return "already resumed and completed" if is_resumed else "already complete"
    if is_alive(folder):
        return "still running"
    if manifest["exit"] and (manifest["exit"]["error"] or "").startswith(NONFINITE):
        return "it failed because of non-finite values, and would fail again"
    return "no complete checkpoint" if latest is None else None


def _lacks_evaluation(folder: Path, config: Config) -> bool:
    return config.evaluation.eval_set is not None and not is_evaluated(folder)


def awaits_evaluation(folder: Path, config: Config) -> bool:
    """Return whether a run has all steps of a configuration and lacks only the evaluation that both configure."""
    if (latest_step(folder) or 0) < config.limits.steps or not _lacks_evaluation(folder, config):
        return False
    try:
        return load_config(folder / CONFIG).evaluation.eval_set == config.evaluation.eval_set
    except ProblemError:
        return False


def own_folder(folder: Path, output: Path) -> Path:
    """Return a run's folder, or for a read-only attached one a copy next to `output` with the newest checkpoint.

    Raises `ProblemError` with exit code 2 if a file or another run is in the way.
    """
    if attached_folder().resolve() not in folder.resolve().parents:
        return folder
    copy = output.with_name(folder.resolve().name)
    refuse_folder(copy)
    newest, part = str(latest_step(folder)), copy.with_name(f".{copy.name}.part")
    checkpoints = str(folder / CHECKPOINTS)

    def older(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if name.isdecimal() and name != newest] if parent == checkpoints else []

    try:
        shutil.rmtree(part, ignore_errors=True)  # left by a session that ended while copying
        shutil.copytree(folder, part, ignore=older, copy_function=shutil.copyfile)
        for parent, _, _ in os.walk(part):
            Path(parent).chmod(0o755)  # copytree copies the read-only mode
        part.rename(copy)
    except OSError as error:
        raise output_error(error, copy, subject="The copy of the attached run") from error
    return copy


def _run_folders(beside: Path) -> Iterator[Path]:
    """Yield the run folders in a folder and in attached folders."""
    if beside.is_dir():
        yield from (path for path in sorted(beside.iterdir()) if (path / MANIFEST).is_file())
    for folder, folders, files in walk_attached():
        if MANIFEST in files:
            folders.clear()
            if folder.parent.resolve() != beside.resolve():
                yield folder


def free_folder(folder: Path) -> Path:
    """Return a folder for a new run: `folder` itself, or if it is not empty the next free name, such as `full-2`."""
    candidates = chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
    return next(each for each in candidates if not each.is_dir() or not any(each.iterdir()))
