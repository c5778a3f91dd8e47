"""Evaluate a run: the model before training, the model after it, and a few items every n steps in between."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file, sha256_lines
from evidence.rules.plausibility import score_caveats
from evidence.scores.reading import accepted_answers, expected_line
from evidence.scores.recompute import compute_scores, describe_form_losses, describe_run_gain, draw_ids
from evidence.writing import RowWriter
from schemas.catalog import VERSION
from schemas.problems import Problem
from schemas.render import as_sentence
from trainer.data.answers import never_stopped, none_read, scoring_document, unwritable_items
from trainer.data.rows import RowFile
from trainer.evaluation.answers import Sampler, answer_items
from trainer.evaluation.reanswer import trace_texts
from trainer.loop.loop import HeldOutPoint
from trainer.loop.session import StopRequest
from trainer.loop.step import TrainState
from trainer.loop.task import Task, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.model.stacks import Params, unstack_on_devices
from trainer.objectives.data import Data
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder, now

EVALUATED = "evaluated"
"""Log event of a complete evaluation."""

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
    """File of the rows."""
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
    """Called before the first answer."""

    def evaluate_untrained(self, state: TrainState, frozen: Params, recorder: Recorder) -> ModelAnswers | None:
        """Return the untrained model's answers, or None if no baseline is configured or training has begun."""
        if not self.sampler.settings.baseline:
            return None
        step = int(state.step)
        if step == 0:
            return self.answers(state, frozen, file=layout.BASELINE_PREDICTIONS, what="baseline")
        message = f"baseline evaluation skipped (resumed at step {step}); see the run that began at step 0"
        recorder.log("info", "baseline_left_out", message, step=step)
        return None

    def evaluate(self, state: TrainState, frozen: Params, baseline: ModelAnswers | None, recorder: Recorder) -> bool:
        """Answer the set with the trained model, record the summary, and return whether every item was answered."""
        trained = self.answers(state, frozen, file=layout.PREDICTIONS, what="evaluation")
        summary = self.summary(trained, baseline, run_id=recorder.run_id)
        recorder.document(layout.EVAL_SUMMARY, summary)
        recorder.log(
            "info",
            # A run logs one evaluation. One that was stopped may be completed later, which seals the run again.
            EVALUATED if trained.complete else "evaluation_stopped",
            describe_summary(summary, self.items.name),
            metrics=summary["metrics"],
            eval_set_sha256=summary["eval_set"]["sha256"],
            params_sha256=summary["checkpoint"]["params_sha256"],
        )
        for problem in self.unread_answers(trained):
            recorder.log("warning", "answers_unread", f"{problem.code}: {as_sentence(problem)}", code=problem.code)
        for sentence in describe_form_losses(summary, ()):
            recorder.log("warning", "answers_of_another_form", sentence)
        return trained.complete

    def answers(self, state: TrainState, frozen: Params, *, file: str, what: str) -> ModelAnswers:
        """Answer every item in order until the run is told to stop, and append each row to `file` immediately."""
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

    def unread_answers(self, answered: ModelAnswers) -> list[Problem]:
        """Return warnings if no output contains an answer that can be read, or none contains the stop text."""
        unread = none_read(answered.rows, self.sampler.scoring, file=layout.PREDICTIONS)
        return [*unread, *never_stopped(answered.rows, self.sampler.settings.stop, file=layout.PREDICTIONS)]

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
    """Answers some items of the evaluation set every `every_steps` steps, greedily.

    The items follow from the run's seed and use the program of the final evaluation, so a resumed or replayed run gets
    the same rows.
    """

    sampler: Sampler
    items: RowFile
    """The selected items."""
    prompts: Sequence[Sequence[int]]
    """Token ids of each selected item."""
    like: Sequence[Sequence[int]]
    """Token ids of the whole set."""
    every_steps: int

    def is_due(self, done: int) -> bool:
        """Return whether to evaluate after this many steps."""
        return done % self.every_steps == 0

    def measure(self, done: int, state: TrainState, frozen: Params) -> HeldOutPoint:
        """Return score, loss (nats per token of the expected answers) and answers after `done` steps."""
        began = time.perf_counter()
        params = unstack_on_devices(combine(state.trained, drop_reference_params(frozen)))
        rows = tuple(
            {"step": done} | {key: row[key] for key in HELD_OUT_FIELDS if key in row}
            for row in answer_items(self.sampler, params, self.items.rows, self.prompts, like=self.like)
        )
        losses = answer_losses(self.sampler, params, self.items, self.prompts)
        mean = fmean(losses) if losses else math.nan
        figures: dict[str, float | None] = {"held_out_score": sum(row["correct"] for row in rows) / len(rows)}
        if losses:
            figures["held_out_loss"] = mean if math.isfinite(mean) else None
        return HeldOutPoint(figures | {"held_out_seconds": time.perf_counter() - began}, rows)


def build_held_out(task: Task, data: Data) -> HeldOut | None:
    """Return the evaluation during training, or None if none is configured."""
    settings = task.config.evaluation
    if settings.every_steps == 0 or data.items is None:
        return None
    file, prompts = data.items.file, data.items.prompts
    chosen = set(draw_ids([item["id"] for item in file.rows], settings.during_items, task.config.seed))
    places = [place for place, item in enumerate(file.rows) if item["id"] in chosen]
    sampler = Sampler.for_task(task, form=data.form, scoring=data.scoring, tokenizer=data.tokenizer)
    return HeldOut(
        sampler=replace(sampler, settings=replace(settings, samples=1)),
        items=replace(
            file, rows=tuple(file.rows[place] for place in places), lines=tuple(file.lines[place] for place in places)
        ),
        prompts=[prompts[place] for place in places],
        like=prompts,
        every_steps=settings.every_steps,
    )


def answer_losses(sampler: Sampler, params: Params, items: RowFile, prompts: Sequence[Sequence[int]]) -> list[float]:
    """Return the mean loss in nats of each expected answer that fits into the model's positions."""
    template = "<answer>{}</answer>" if sampler.scoring.answer == "tags" else "{}"
    texts = []
    for item, prompt in zip(items.rows, prompts, strict=True):
        answer = sampler.tokenizer.encode(template.format(accepted_answers(item)[0]), add_special_tokens=False)
        if prompt and answer and len(prompt) + len(answer) <= sampler.max_positions:
            texts.append((prompt, answer))
    traces = trace_texts(
        sampler.graphdef, params, texts, batch_size=sampler.settings.batch_size, options=sampler.options
    )
    return [float(trace.losses.mean()) for trace in traces]


def build_evaluator(
    task: Task,
    data: Data,
    recorder: Recorder,
    stop: StopRequest,
    watch: Watch,
    *,
    on_start: Callable[[], None] = lambda: None,
) -> Evaluator | None:
    """Return the evaluator of a run, or None if its configuration names no evaluation set."""
    if data.items is None:
        return None
    return Evaluator(
        items=data.items.file,
        sampler=Sampler.for_task(task, form=data.form, scoring=data.scoring, tokenizer=data.tokenizer),
        folder=recorder.folder,
        stop=stop,
        watch=watch,
        on_start=on_start,
    )
