"""Add an evaluation to a run that has ended: completely or not at all, wherever the process is killed.

Answers and summary are written to temporary files in the run folder. The manifest that lists them is the seal: until it
is written they do not count; afterwards they only have to be moved, which the next command does if this one was killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file, sha256_manifest
from evidence.lock import RunLock
from evidence.writing import RowWriter, write_error, write_json
from schemas.problems import ProblemError, problem_of
from schemas.render import as_sentence
from trainer.config.tree import Config
from trainer.data.answers import check_items, check_prompt_room, encode_items, unreadable_items
from trainer.data.conversations import rendered_at
from trainer.data.rows import read_eval_set
from trainer.evaluation.answers import Sampler
from trainer.evaluation.evaluate import Evaluator, describe_summary
from trainer.evaluation.recorded import (
    is_evaluated,
    read_config,
    read_form,
    read_manifest,
    read_run_scoring,
    read_summary,
    require_checkpoint,
)
from trainer.loop.checkpoints import latest_step, restored_state
from trainer.loop.session import SessionLimit, StopRequest
from trainer.loop.state import refuse_other_tokenizer
from trainer.loop.step import TrainState
from trainer.loop.task import Task, build_mesh
from trainer.model.model import build_model
from trainer.model.source import resolve
from trainer.model.stacks import Params
from trainer.objectives import build_objective
from trainer.recorder.failure import INTERRUPTED, explain_full_device
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import artifacts_of, now
from trainer.runtime import Devices, choose_devices, init_runtime

ADDED_FILES = (layout.PREDICTIONS, layout.EVAL_SUMMARY)

SEALED_AGAIN = "sealed again with its evaluation"
"""Beginning of the log message about the new seal."""


def evaluate_run(
    folder: Path, eval_set: str | None, watch: Watch, *, session: SessionLimit | None = None
) -> dict[str, Any]:
    """Answer an evaluation set with a run's checkpoint, add the answers to the run, and return the summary.

    Args:
        folder: Run folder with a checkpoint, not evaluated yet or only partly; then every item is answered again.
        eval_set: Built-in set or JSONL file, or None for the set that the run's configuration names.
        watch: Shows progress.
        session: Time limit, or None.

    Raises:
        ProblemError: exit code 2; the run is evaluated already, names no set, has no checkpoint of its last step, or
            cannot be written. Exit code 4: the device ran out of memory. Exit code 5: stopped before every item was
            answered. In each case the run is unchanged.
    """
    config, name = _config_to_evaluate(folder, eval_set)
    require_checkpoint(folder)
    devices = available_devices(config, watch)
    model = build_model(config, resolve(config.model.name, config.model.revision, with_weights=False))
    refuse_other_tokenizer(manifest := read_manifest(folder), model.source, file=str(folder))
    items, tokenizer = read_eval_set(name), model.source.tokenizer(rendered_at(manifest))
    form, scoring = read_form(folder, config), read_run_scoring(folder, config, items)
    prompts = encode_items(items, form, tokenizer)
    problems = check_prompt_room(config, items, prompts, max_positions=model.source.spec.max_positions)
    if problems := [*problems, *unreadable_items(items, scoring)]:
        raise ProblemError(problems, exit_code=2)
    task = Task(config=config, model=model, objective=build_objective(config), mesh=build_mesh(devices.list))
    sampler = Sampler.for_task(task, form=form, scoring=scoring, tokenizer=tokenizer)
    for problem in check_items(items, tokenizer, prompts, scoring, max_prompt_tokens=sampler.max_prompt_tokens):
        watch.say(f"{problem.code}: {as_sentence(problem)}")
    with RunLock(folder), StopRequest(max_minutes=None, session=session) as stop:
        finish_or_undo(folder)  # left by a process that was killed
        _refuse_second_evaluation(folder)  # one that ended since the first look
        _refuse_other_step(folder, config)
        evaluator = Evaluator(items=items, sampler=sampler, folder=folder, stop=stop, watch=watch)
        summary = _evaluate_and_seal(folder, evaluator, task, by=describe_devices(devices))
    watch.say(describe_summary(summary, items.name))
    return summary


def _config_to_evaluate(folder: Path, eval_set: str | None) -> tuple[Config, str]:
    config = read_config(folder)
    _refuse_second_evaluation(folder)
    declared = config.evaluation.eval_set
    at: dict[str, Any] = {"file": str(folder / layout.CONFIG), "pointer": "/evaluation/eval_set", "why": None}
    name = eval_set or declared
    if name is None:
        problem = problem_of("TP071", **at, what="The run's configuration names no evaluation set.")
        raise ProblemError([problem], exit_code=2)
    if declared is not None and name != declared:
        problem = problem_of(
            "TP074",
            **at,
            what=f"The run's configuration declares {declared}, and --eval-set is {name}.",
            next=f"Leave --eval-set out, or train another run with --set evaluation.eval_set={name}.",
        )
        raise ProblemError([problem], exit_code=2)
    return replace(config, evaluation=replace(config.evaluation, eval_set=name)), name


def _refuse_other_step(folder: Path, config: Config) -> None:
    """Refuse to score a checkpoint that is not of the run's last step."""
    manifest = read_manifest(folder)
    step, done = latest_step(folder), (manifest["training"] or {}).get("steps_done")
    if step == done:
        return
    what = f"The newest checkpoint is at step {step}; the run did {done} steps."
    if manifest["status"] == "running":
        what = f"The run was killed; its newest checkpoint is at step {step} of {config.limits.steps}."
    problem = problem_of(
        "TP075",
        file=str(folder),
        what=what,
        next=f"Continue it, which evaluates at the end: trainproof train --resume {folder} "
        f"--set evaluation.eval_set={config.evaluation.eval_set}.",
    )
    raise ProblemError([problem], exit_code=2)


def _refuse_second_evaluation(folder: Path) -> None:
    if is_evaluated(folder):
        problem = problem_of(
            "TP070", file=str(folder / layout.EVAL_SUMMARY), what="The run has been evaluated already."
        )
        raise ProblemError([problem], exit_code=2)


def _stopped(folder: Path, reason: str | None) -> ProblemError:
    what = f"The evaluation was stopped ({reason}); the run is as it was before."
    return ProblemError([problem_of("TP072", file=str(folder), why=None, what=what)], exit_code=5)


def _evaluate_and_seal(folder: Path, evaluator: Evaluator, task: Task, *, by: str) -> dict[str, Any]:
    try:
        [state], frozen = restored_state(folder, task)
        with _undone_unless_finished(folder):
            with explain_full_device(str(folder)):
                summary = _evaluate_unsealed(folder, evaluator, state, frozen)
            _seal_again(folder, summary, by=by)
    except OSError as error:
        raise write_error(error, folder, what="The evaluation") from error
    except KeyboardInterrupt:
        raise _stopped(folder, "a second signal") from None
    return summary


def _evaluate_unsealed(folder: Path, evaluator: Evaluator, state: TrainState, frozen: Params) -> dict[str, Any]:
    """Write the answers to a temporary file in the run folder and return the summary."""
    trained = evaluator.answers(state, frozen, file=_temporary(folder, layout.PREDICTIONS).name, what="evaluation")
    if not trained.complete:
        raise _stopped(folder, evaluator.stop.reason())
    for problem in evaluator.unread_answers(trained):
        evaluator.watch.say(f"{problem.code}: {as_sentence(problem)}")
    summary = evaluator.summary(trained, None, run_id=folder.resolve().name)
    summary["predictions"]["path"] = layout.PREDICTIONS
    # An evaluation that was stopped had the complete answers of the untrained model.
    return summary | {"baseline": (read_summary(folder) or {}).get("baseline")}


def _temporary(folder: Path, name: str) -> Path:
    return folder / f".{name}.tmp"


def _seal_again(folder: Path, summary: dict[str, Any], *, by: str) -> None:
    """Move the temporary answer and summary files into the run and seal it again."""
    write_json(_temporary(folder, layout.EVAL_SUMMARY), summary)
    manifest = read_manifest(folder) | {"finished_at": now()}
    if manifest["status"] == "running":  # killed after its last step
        ending = {"code": INTERRUPTED, "error": None, "message": "killed after its last step; evaluated later"}
        manifest |= {"status": "interrupted", "exit": ending}
    sealed = {
        "time": now(),
        "level": "info",
        "event": "run_sealed",
        "message": f"{SEALED_AGAIN} on {by}",
        "fields": {"manifest_sha256": sha256_manifest(manifest)},
    }
    with RowWriter(folder / layout.LOG) as log:
        log.append(sealed)
    instead = {name: _temporary(folder, name) for name in ADDED_FILES}
    write_json(folder / layout.MANIFEST, manifest | {"artifacts": artifacts_of(folder, instead=instead)})
    for name, path in instead.items():
        path.replace(folder / name)


def finish_or_undo(folder: Path) -> None:
    """Finish an evaluation that was killed after its seal, or remove what one killed before left.

    The caller holds the lock of the run.
    """
    left = [name for name in ADDED_FILES if _temporary(folder, name).exists()]
    sealed = {artifact["path"]: artifact["sha256"] for artifact in read_manifest(folder)["artifacts"]}
    complete = [name for name in left if sha256_file(_temporary(folder, name)) == sealed.get(name)]
    for name in complete:
        _temporary(folder, name).replace(folder / name)
    if complete != left:
        log = folder / layout.LOG
        lines = log.read_bytes().splitlines(keepends=True)
        if lines and SEALED_AGAIN.encode() in lines[-1]:
            os.truncate(log, sum(map(len, lines[:-1])))
    for name in left:
        _temporary(folder, name).unlink(missing_ok=True)


@contextmanager
def _undone_unless_finished(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        finish_or_undo(folder)
        raise


def available_devices(config: Config, watch: Watch) -> Devices:
    """Return the kind of devices that a run was trained on, or else the devices of this machine, with a message.

    Training never falls back to other devices; a checkpoint may be used on any.
    """
    init_runtime(config)
    try:
        return choose_devices(config.mesh.device, config.mesh.devices)
    except ProblemError as error:
        here = choose_devices("auto", None)
        watch.say(f"{error.problems[0].what} {describe_devices(here)} is used instead.")
        return here


def describe_devices(devices: Devices) -> str:
    """Return count and kind: `8 × cpu`."""
    return f"{len(devices.list)} × {devices.kind}"
