"""Evaluate a run: before and after training, on a few items every n steps in between, or later from a checkpoint.

An evaluation that is added to a finished run is added completely or not at all, wherever the process is killed. Its
files are written under temporary names, and do not count until the manifest that lists them is written. Afterwards they
only have to be moved, which the next command does if this one was killed.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file, sha256_lines, sha256_manifest
from evidence.lock import RunLock
from evidence.proof.signatures import problem_error
from evidence.rules.plausibility import score_caveats
from evidence.scores.reading import accepted_answers, expected_line
from evidence.scores.recompute import compute_scores, describe_format_losses, describe_run_gain, draw_ids
from evidence.writing import RowWriter, output_error, write_json
from schemas.catalog import VERSION
from schemas.problems import ProblemError, problem_of
from schemas.render import render_sentence
from trainer.config.tree import Config
from trainer.data.answers import (
    check_items,
    check_prompt_room,
    none_read,
    scoring_document,
    unreadable_items,
    unwritable_items,
)
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.answers import Sampler, answer_items, select_rows, trace_texts
from trainer.evaluation.recorded import (
    EVALUATED,
    is_evaluated,
    read_config,
    read_manifest,
    read_sampler,
    read_summary,
    require_checkpoint,
)
from trainer.loop.checkpoints import latest_step, restored_state
from trainer.loop.session import SessionLimit, StopRequest
from trainer.loop.state import refuse_other_tokenizer
from trainer.loop.step import TrainState
from trainer.loop.task import Task, build_mesh, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.model.source import resolve
from trainer.model.stacks import Params, unstack_on_devices
from trainer.objectives.data import Data
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import INTERRUPTED, Recorder, explain_full_device, list_artifacts, now
from trainer.runtime import Devices, choose_devices, init_runtime

CHANGED_FILES = (layout.LOG, layout.PREDICTIONS, layout.EVAL_SUMMARY)
"""Files that an evaluation changes or adds; the summary is moved last, because a run with it counts as evaluated."""

HELD_OUT_FIELDS = (
    *("id", "prompt", "expected", "also_expected", "output_text", "extracted_answer", "correct"),
    *("output_tokens", "finish_reason", "error"),
)
"""Fields of a prediction row that `answers_over_steps.jsonl` has too."""


@dataclass(frozen=True, kw_only=True)
class ModelAnswers:
    """The answers of one model to an evaluation set."""

    complete: bool
    """Whether every item was answered."""
    started_at: str
    finished_at: str
    rows: tuple[dict[str, Any], ...]
    path: Path
    checkpoint: dict[str, Any]
    """Step and hash of the parameters."""

    @property
    def seconds(self) -> float:
        """Wall time of the evaluation."""
        return (datetime.fromisoformat(self.finished_at) - datetime.fromisoformat(self.started_at)).total_seconds()

    def document(self, samples: int) -> dict[str, Any]:
        """Return the groups of `eval_summary.json` that belong to one model: parameters, file of answers, scores."""
        predictions = {"path": self.path.name, "rows": len(self.rows), "sha256": sha256_file(self.path)}
        return {"checkpoint": self.checkpoint, "predictions": predictions, **compute_scores(self.rows, samples)}


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Answers an evaluation set with the model of a run."""

    items: RowFile
    sampler: Sampler
    folder: Path
    """Run folder, which gets the prediction files."""
    stop: StopRequest
    watch: Watch
    on_start: Callable[[], None] = field(default=lambda: None)

    def evaluate_untrained(self, state: TrainState, frozen: Params, recorder: Recorder) -> ModelAnswers | None:
        """Return the untrained model's answers, or None if no baseline is configured or training has begun."""
        if not self.sampler.settings.baseline:
            return None
        if (step := int(state.step)) == 0:
            return self.answers(state, frozen, file=layout.BASELINE_PREDICTIONS, what="baseline answers")
        message = f"baseline evaluation skipped (resumed at step {step}); see the run that began at step 0"
        recorder.log("info", "baseline_left_out", message, step=step)
        return None

    def evaluate(self, state: TrainState, frozen: Params, baseline: ModelAnswers | None, recorder: Recorder) -> bool:
        """Answer the set with the trained model, record the summary, and return whether every item was answered."""
        trained = self.answers(state, frozen, file=layout.PREDICTIONS, what="answers")
        summary = self.summary(trained, baseline, run_id=recorder.run_id)
        recorder.document(layout.EVAL_SUMMARY, summary)
        # A run logs one evaluation. One that was stopped may be completed later, which seals the run again.
        event, message = (
            EVALUATED if trained.complete else "evaluation_stopped",
            describe_summary(summary, self.items.name),
        )
        hashes = {"eval_set_sha256": self.items.sha256, "params_sha256": trained.checkpoint["params_sha256"]}
        recorder.log("info", event, message, metrics=summary["metrics"], **hashes)
        for problem in none_read(trained.rows, self.sampler.scoring, file=layout.PREDICTIONS):
            recorder.log("warning", "answers_unread", f"{problem.code}: {render_sentence(problem)}", code=problem.code)
        for sentence in describe_format_losses(summary, ()):
            recorder.log("warning", "answers_of_another_form", sentence)
        return trained.complete

    def answers(self, state: TrainState, frozen: Params, *, file: str, what: str) -> ModelAnswers:
        """Answer every item in order until the run has to stop, and append each row to `file` immediately."""
        params = unstack_on_devices(combine(state.trained, frozen))
        self.on_start()
        started_at, path = now(), self.folder / file
        answered = answer_items(self.sampler, params, self.items.rows, self.sampler.encode_prompts(self.items))
        rows: list[dict[str, Any]] = []
        with RowWriter(path) as writer:
            while len(rows) < len(self.items.rows) and not self.stop.reason():
                rows.append(next(answered))
                writer.append(rows[-1])
                self.watch.done(what, len(rows), len(self.items.rows))
        return ModelAnswers(
            complete=len(rows) == len(self.items.rows),
            started_at=started_at,
            finished_at=now(),
            rows=tuple(rows),
            path=path,
            checkpoint={"step": int(state.step), "params_sha256": params_sha256(params)},
        )

    def summary(self, trained: ModelAnswers, baseline: ModelAnswers | None, *, run_id: str) -> dict[str, Any]:
        """Return the document `eval_summary.json`."""
        items, sampler, samples = self.items, self.sampler, self.sampler.settings.samples
        unwritable = unwritable_items(items.rows, sampler.tokenizer, sampler.scoring)
        complete = trained.complete and (baseline is None or baseline.complete)
        return {
            "schema_version": VERSION,
            "run_id": run_id,
            "status": "complete" if complete else "partial",
            "started_at": trained.started_at,
            "finished_at": trained.finished_at,
            "eval_set": {
                "name": items.name,
                "items": len(items.rows),
                "sha256": items.sha256,
                "ids_sha256": sha256_lines(item["id"] for item in items.rows),
                "prompts_sha256": sha256_lines(item["prompt"] for item in items.rows),
                "expected_sha256": sha256_lines(map(expected_line, items.rows)),
                **({"items_unwritable": len(unwritable)} if unwritable else {}),
            },
            "generation": sampler.document(),
            "scoring": scoring_document(sampler.scoring),
            **trained.document(samples),
            "baseline": None if baseline is None else baseline.document(samples),
        }


def describe_summary(summary: dict[str, Any], name: str) -> str:
    """Return the score as one line: value, interval, number of items, score before training, and caveats."""
    score = summary["metrics"]["exact_match"]
    if score["value"] is None:
        return f"exact match on {name}: no item was answered"
    inside = f"95 % interval {score['interval']['low']:.3f} to {score['interval']['high']:.3f}, {score['n']} items"
    if summary["baseline"] and (before := summary["baseline"]["metrics"]["exact_match"]["value"]) is not None:
        inside += f"; before training {before:.3f}"
    parts = [f"exact match on {name}: {score['value']:.3f} ({inside})"]
    if (sampled := summary.get("sampled")) is not None:
        first, *_, last = sampled["pass_at"]
        tries = ", ".join(f"pass@{each['tries']} {each['value']:.3f}" for each in (first, last))
        parts.append(f"of {sampled['samples']} samples {tries}, majority {sampled['majority']['value']:.3f}")
    if (gain := describe_run_gain(summary)) is not None:
        parts.append(gain)
    return "; ".join([*parts, *(caveat for _, caveat in score_caveats(summary))])


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Answers some items of the evaluation set every `evaluation.every_steps` steps, greedily.

    The items follow from the run's seed and use the program of the final evaluation, so a resumed or replayed run gets
    the same rows.
    """

    sampler: Sampler
    items: RowFile
    prompts: Sequence[Sequence[int]]
    """Token ids of each selected item."""
    like: Sequence[Sequence[int]]
    """Token ids of the whole set."""

    def __call__(
        self, done: int, state: TrainState, frozen: Params
    ) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
        """Return score, loss (nats per token of the expected answers) and answers after `done` steps."""
        began = time.perf_counter()
        params = unstack_on_devices(combine(state.trained, drop_reference_params(frozen)))
        rows = [
            {"step": done} | {key: row[key] for key in HELD_OUT_FIELDS if key in row}
            for row in answer_items(self.sampler, params, self.items.rows, self.prompts, like=self.like)
        ]
        figures: dict[str, float | None] = {"held_out_score": sum(row["correct"] for row in rows) / len(rows)}
        if losses := answer_losses(self.sampler, params, self.items, self.prompts):
            figures["held_out_loss"] = mean if math.isfinite(mean := fmean(losses)) else None
        return figures | {"held_out_seconds": time.perf_counter() - began}, rows


def build_held_out(task: Task, data: Data) -> HeldOut | None:
    """Return the evaluation during training, or None if none is configured."""
    settings = task.config.evaluation
    if settings.every_steps == 0 or data.items is None:
        return None
    file, like = data.items.file, data.items.prompts
    chosen = set(draw_ids([item["id"] for item in file.rows], settings.during_items, task.config.seed))
    places = [place for place, item in enumerate(file.rows) if item["id"] in chosen]
    sampler = replace(Sampler.for_task(task, data), settings=replace(settings, samples=1))
    prompts = [like[place] for place in places]
    return HeldOut(sampler=sampler, items=select_rows(file, places), prompts=prompts, like=like)


def answer_losses(sampler: Sampler, params: Params, items: RowFile, prompts: Sequence[Sequence[int]]) -> list[float]:
    """Return the mean loss in nats of each expected answer that fits into the model's positions."""
    template = "<answer>{}</answer>" if sampler.scoring.answer == "tags" else "{}"
    texts = []
    for item, prompt in zip(items.rows, prompts, strict=True):
        answer = sampler.tokenizer.encode(template.format(accepted_answers(item)[0]), add_special_tokens=False)
        if prompt and answer and len(prompt) + len(answer) <= sampler.task.model.source.spec.max_positions:
            texts.append((prompt, answer))
    return [float(losses.mean()) for _, losses in trace_texts(sampler, params, texts)]


def evaluate_run(
    folder: Path, eval_set: str | None, watch: Watch, *, session: SessionLimit | None = None
) -> dict[str, Any]:
    """Answer an evaluation set with a run's checkpoint, add the answers to the run, and return the summary.

    If it was evaluated partly, every item is answered again. `eval_set` is a built-in set or JSONL file, or None for
    the set that the run's configuration names.

    Raises:
        ProblemError: Exit code 2; the run is already evaluated, configures no set, lacks a checkpoint of its last step,
            or cannot be written. Exit code 4: the device ran out of memory. Exit code 5: stopped before every item was
            answered. In each case the run is unchanged.
    """
    config, name = _config_to_evaluate(folder, eval_set)
    require_checkpoint(folder)
    devices = available_devices(config, watch)
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    refuse_other_tokenizer(read_manifest(folder), source, file=str(folder))
    task = Task.of(config, source, build_mesh(devices.list))
    items = read_eval_set(name)
    sampler = read_sampler(folder, task, items)
    prompts = sampler.encode_prompts(items)
    scoring = sampler.scoring
    problems = check_prompt_room(config, items, prompts, max_positions=source.spec.max_positions)
    if problems := [*problems, *unreadable_items(items, scoring)]:
        raise ProblemError(problems, exit_code=2)
    for problem in check_items(items, sampler.tokenizer, prompts, scoring, max_prompt_tokens=sampler.max_prompt_tokens):
        watch.say(f"{problem.code}: {render_sentence(problem)}")
    with RunLock(folder), StopRequest(max_minutes=None, session=session) as stop:
        finish_or_undo(folder)  # left by a process that was killed
        _refuse_second_evaluation(folder)  # one that ended since the first look
        _refuse_other_step(folder, config)
        evaluator = Evaluator(items=items, sampler=sampler, folder=folder, stop=stop, watch=watch)
        try:
            [state], frozen = restored_state(folder, task)
            try:
                with explain_full_device(str(folder)):
                    summary = _evaluate_unsealed(folder, evaluator, state, frozen)
                _seal_again(folder, summary, by=describe_devices(devices))
            finally:
                finish_or_undo(folder)
        except OSError as error:
            raise output_error(error, folder, subject="The evaluation") from error
        except KeyboardInterrupt:
            raise _stopped(folder, "a second signal") from None
    watch.say(describe_summary(summary, items.name))
    return summary


def _config_to_evaluate(folder: Path, eval_set: str | None) -> tuple[Config, str]:
    config = read_config(folder)
    _refuse_second_evaluation(folder)
    declared = config.evaluation.eval_set
    name = eval_set or declared
    if name is not None and declared in (None, name):
        return config.changed(evaluation={"eval_set": name}), name
    code, what, advice = "TP071", "The run's configuration names no evaluation set.", None
    if name is not None:
        code, what = "TP074", f"The run's configuration declares {declared}, and --eval-set is {name}."
        advice = f"Leave --eval-set out, or train another run with --set evaluation.eval_set={name}."
    place: dict[str, Any] = {"file": str(folder / layout.CONFIG), "pointer": "/evaluation/eval_set"}
    raise ProblemError([problem_of(code, why=None, what=what, next=advice, **place)], exit_code=2)


def _refuse_other_step(folder: Path, config: Config) -> None:
    """Refuse to score a checkpoint that is not of the run's last step."""
    manifest = read_manifest(folder)
    step, done = latest_step(folder), (manifest["training"] or {}).get("steps_done")
    if step == done:
        return
    what = f"The newest checkpoint is at step {step}; the run did {done} steps."
    if manifest["status"] == "running":
        what = f"The run was killed; its newest checkpoint is at step {step} of {config.limits.steps}."
    command = f"trainproof train --resume {folder} --set evaluation.eval_set={config.evaluation.eval_set}"
    raise problem_error(folder, "TP075", what=what, next=f"Continue it, which evaluates at the end: {command}.")


def _refuse_second_evaluation(folder: Path) -> None:
    if is_evaluated(folder):
        raise problem_error(folder / layout.EVAL_SUMMARY, "TP070", what="The run has been evaluated already.")


def _stopped(folder: Path, reason: str | None) -> ProblemError:
    what = f"The evaluation was stopped ({reason}); the run is unchanged."
    return ProblemError([problem_of("TP072", file=str(folder), why=None, what=what)], exit_code=INTERRUPTED)


def _evaluate_unsealed(folder: Path, evaluator: Evaluator, state: TrainState, frozen: Params) -> dict[str, Any]:
    """Write the answers to a temporary file in the run folder and return the summary."""
    trained = evaluator.answers(state, frozen, file=_temporary(folder, layout.PREDICTIONS).name, what="answers")
    if not trained.complete:
        raise _stopped(folder, evaluator.stop.reason())
    for problem in none_read(trained.rows, evaluator.sampler.scoring, file=layout.PREDICTIONS):
        evaluator.watch.say(f"{problem.code}: {render_sentence(problem)}")
    summary = evaluator.summary(trained, None, run_id=folder.resolve().name)
    summary["predictions"]["path"] = layout.PREDICTIONS
    # An evaluation that was stopped had the complete answers of the untrained model.
    return summary | {"baseline": (read_summary(folder) or {}).get("baseline")}


def _temporary(folder: Path, name: str) -> Path:
    return folder / f".{name}.tmp"


def _seal_again(folder: Path, summary: dict[str, Any], *, by: str) -> None:
    """Write summary and log to temporary files, then the manifest with the hashes of all temporary files."""
    temporary = {name: _temporary(folder, name) for name in CHANGED_FILES}
    write_json(temporary[layout.EVAL_SUMMARY], summary)
    manifest = read_manifest(folder) | {"finished_at": now()}
    if manifest["status"] == "running":  # killed after its last step
        ending = {"code": INTERRUPTED, "error": None, "message": "killed after its last step; evaluated later"}
        manifest |= {"status": "interrupted", "exit": ending}
    event = {"level": "info", "event": "run_sealed", "message": f"sealed again with its evaluation on {by}"}
    shutil.copyfile(folder / layout.LOG, temporary[layout.LOG])
    with RowWriter(temporary[layout.LOG]) as log:
        log.append({"time": now(), **event, "fields": {"manifest_sha256": sha256_manifest(manifest)}})
    write_json(folder / layout.MANIFEST, manifest | {"artifacts": list_artifacts(folder, replaced=temporary)})


def finish_or_undo(folder: Path) -> None:
    """Move the files of an evaluation into its run if the manifest lists them, or else remove them.

    The caller has locked the run.
    """
    sealed = {artifact["path"]: artifact["sha256"] for artifact in read_manifest(folder)["artifacts"]}
    for name in CHANGED_FILES:
        if (path := _temporary(folder, name)).exists():
            if sha256_file(path) == sealed.get(name):
                path.replace(folder / name)
            else:
                path.unlink()


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
