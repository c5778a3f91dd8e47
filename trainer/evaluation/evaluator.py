"""The evaluation of a run: the model before training, the model after it, and the summary of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.rules.plausibility import score_caveats
from evidence.scores.recompute import describe_form_losses, describe_run_gain
from schemas.problems import Problem
from schemas.render import as_sentence
from trainer.data.answers import never_stopped, none_read
from trainer.data.rows import RowFile
from trainer.evaluation.evaluate import EVALUATED, ModelAnswers, answer_set, summary_of
from trainer.evaluation.sampler import Sampler, sampler_of
from trainer.loop.step import TrainState
from trainer.loop.stop import StopRequest
from trainer.loop.task import Task
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.model.stacks import Params, unstack_on_devices
from trainer.objectives.data import Data
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """An evaluation set and how it is put to a model."""

    items: RowFile
    sampler: Sampler
    """How it is put to the model."""
    folder: Path
    """Of the run; prediction files are written into it."""
    stop: StopRequest
    watch: Watch
    begins: Callable[[], None] = field(default=lambda: None)
    """Called before the first of the answers is made."""

    def evaluate_untrained(self, state: TrainState, frozen: Params, recorder: Recorder) -> ModelAnswers | None:
        """Return the untrained model's answers, or None if none are requested or the model is trained already.

        A run that was stopped before its first step is continued with the untrained model, which then answers.
        """
        if not self.sampler.settings.baseline:
            return None
        step = int(state.step)
        if step == 0:
            return self.answers(state, frozen, file=layout.BASELINE_PREDICTIONS, what="baseline")
        recorder.log(
            "info",
            "baseline_left_out",
            f"the untrained model is not asked: this run begins after step {step}; what it answered stands in the run "
            "that began at step 0, if it was asked there",
            step=step,
        )
        return None

    def evaluate(self, state: TrainState, frozen: Params, baseline: ModelAnswers | None, recorder: Recorder) -> bool:
        """Put the set to the trained model, record the summary of both, and return whether every item was answered."""
        trained = self.answers(state, frozen, file=layout.PREDICTIONS, what="evaluation")
        summary = summary_of(
            trained,
            baseline,
            run_id=recorder.run_id,
            items=self.items,
            sampler=self.sampler,
        )
        recorder.document(layout.EVAL_SUMMARY, summary)
        recorder.log(
            "info",
            # A run logs one evaluation; one that was stopped may be completed later, which seals the run again.
            EVALUATED if trained.evaluated.complete else "evaluation_stopped",
            in_words(summary, self.items.name),
            metrics=summary["metrics"],
            eval_set_sha256=summary["eval_set"]["sha256"],
            params_sha256=summary["checkpoint"]["params_sha256"],
        )
        for problem in self.unread(trained):
            recorder.log("warning", "answers_unread", f"{problem.code}: {as_sentence(problem)}", code=problem.code)
        for sentence in describe_form_losses(summary, ()):
            recorder.log("warning", "answers_of_another_form", sentence)
        return trained.evaluated.complete

    def unread(self, answered: ModelAnswers) -> list[Problem]:
        """Return warnings that no output had an answer of the form that is read, or the stop text."""
        rows, stop = answered.evaluated.rows, self.sampler.settings.stop
        unread = none_read(rows, self.sampler.scoring, file=layout.PREDICTIONS)
        return [*unread, *never_stopped(rows, stop, file=layout.PREDICTIONS)]

    def answers(self, state: TrainState, frozen: Params, *, file: str, what: str) -> ModelAnswers:
        """Return a model's answers, each written to `file` as it came."""
        params = unstack_on_devices(combine(state.trained, frozen))
        self.begins()
        evaluated = answer_set(
            self.items,
            self.sampler,
            params,
            path=self.folder / file,
            stop_now=self.stop.reason,
            progress=lambda count, total: self.watch.done(what, count, total),
        )
        checkpoint = {"step": int(state.step), "params_sha256": params_sha256(params)}
        return ModelAnswers(evaluated=evaluated, checkpoint=checkpoint)


def evaluator_of(
    task: Task,
    data: Data,
    recorder: Recorder,
    stop: StopRequest,
    watch: Watch,
    *,
    begins: Callable[[], None] = lambda: None,
) -> Evaluator | None:
    """Return the evaluation of a run, or None if it is missing; `begins` is called before its answers are made."""
    if data.items is None:
        return None
    return Evaluator(
        items=data.items.file,
        sampler=sampler_of(task, data, data.scoring),
        folder=recorder.folder,
        stop=stop,
        watch=watch,
        begins=begins,
    )


def in_words(summary: dict[str, Any], name: str) -> str:
    """Return the score as one line: value, interval, number of items and the untrained model's value."""
    score = summary["metrics"]["exact_match"]
    if score["value"] is None:
        return f"exact match on {name}: no item was answered"
    interval = f"{score['interval']['low']:.3f} to {score['interval']['high']:.3f}"
    before = ""
    if summary["baseline"] and summary["baseline"]["metrics"]["exact_match"]["value"] is not None:
        before = f"; before training {summary['baseline']['metrics']['exact_match']['value']:.3f}"
    after = samples_in_words(summary) + ("" if (gain := describe_run_gain(summary)) is None else f"; {gain}")
    after += "".join(f"; {said}" for _, said in score_caveats(summary))
    return f"exact match on {name}: {score['value']:.3f} (95 % interval {interval}, {score['n']} items{before}){after}"


def samples_in_words(summary: dict[str, Any]) -> str:
    """Return what came of several samples: `; of 8 samples pass@1 0.250, pass@8 0.500, majority 0.300`."""
    if (sampled := summary.get("sampled")) is None:
        return ""
    one, *_, every = sampled["pass_at"]
    tries = ", ".join(f"pass@{each['tries']} {each['value']:.3f}" for each in (one, every))
    return f"; of {sampled['samples']} samples {tries}, majority {sampled['majority']['value']:.3f}"
