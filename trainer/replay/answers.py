"""Giving the answers of a run's evaluation again, with the parameters that are stated to have given them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evidence import layout
from evidence.scores.reading import Scoring, read_scoring
from schemas.problems import ProblemError
from trainer.data.rows import RowFile
from trainer.evaluation.answers import Sampler
from trainer.evaluation.reanswer import VerifiedAnswer, receipt_items, verify_answers
from trainer.evaluation.recorded import recorded_items
from trainer.loop.step import TrainState
from trainer.loop.task import Task, without_reference
from trainer.loop.trained_params import kept_params
from trainer.methods.method import combine
from trainer.model.params import Params, params_sha256
from trainer.model.stacking import apart_on_devices
from trainer.objectives.data import Data
from trainer.replay.recorded import RecordedRun
from trainer.replay.states import States


@dataclass(kw_only=True)
class RegeneratedAnswers:
    """Answers of a run that were given again, by the trained model and by the one before training."""

    trained_of: int = 0
    """Answers of the trained model that the run states."""
    untrained_of: int = 0
    """Those of the model before training."""
    trained: list[VerifiedAnswer] = field(default_factory=list)
    untrained: list[VerifiedAnswer] = field(default_factory=list)

    @property
    def found(self) -> list[VerifiedAnswer]:
        """All that were looked at."""
        return [*self.untrained, *self.trained]

    @property
    def different(self) -> list[VerifiedAnswer]:
        """Those that the model does not give."""
        return [each for each in self.found if each.verdict == "different"]

    def document(self) -> dict[str, Any]:
        """Return the receipt's group `items`."""
        return receipt_items(self.trained, self.untrained)


@dataclass(frozen=True, kw_only=True)
class EvaluationItems:
    """The items of a run's evaluation, and how its answers are read."""

    items: RowFile
    scoring: Scoring


def answered_again(
    params: Params,
    stated: Sequence[dict[str, Any]],
    anew: set[str],
    task: Task,
    data: Data,
    asked: EvaluationItems,
    progress: Callable[[int, int], None],
) -> tuple[VerifiedAnswer, ...]:
    """Return how the stated answers compare with those that parameters give here.

    Args:
        params: that are stated to have given them.
        stated: the run's rows.
        anew: ids of the items whose answers are written anew; the others are followed in one pass.
        task: what the run trains.
        data: that it learns from.
        asked: the set that the run was evaluated on, and how answers are read.
        progress: called with items done and items in all.
    """
    if not stated:
        return ()
    sampler = Sampler.for_task(task, form=data.form, scoring=asked.scoring, tokenizer=data.tokenizer)
    return verify_answers(sampler, params, stated, asked.items, regenerate=anew, progress=progress)


def items_asked(run: RecordedRun, data: Data) -> EvaluationItems | None:
    """Return the set that a run was evaluated on: its configuration's, or that of a later evaluation.

    None for neither.
    """
    if data.items is not None:
        return EvaluationItems(items=data.items.file, scoring=data.scoring)
    if run.summary is None:
        return None
    return EvaluationItems(items=recorded_items(run.summary, run.answers), scoring=read_scoring(run.summary))


def trained_params(run: RecordedRun, states: States, ended: TrainState | None) -> tuple[Params | None, str]:
    """Return the parameters that answered after training, and where they are from, or None if they are missing.

    They are those at the end of the repetition, of the run's last checkpoint, or of the file of its evidence that
    keeps them: in this order, the first whose hash is the one that the evaluation states.
    """
    stated = None if run.summary is None else run.summary["checkpoint"]["params_sha256"]
    if ended is not None:
        params = states.params_of(ended)
        if params_sha256(params) == stated:
            return params, "the end of the repetition"
    state = states.at(run.last_step) if run.last_step in states.steps else None
    if state is not None:
        params = states.params_of(state)
        if params_sha256(params) == stated:
            return params, "the last checkpoint"
    try:
        kept = kept_params(run.folder, states.task)
    except ProblemError as error:
        states.remarks.append(f"{layout.TRAINED_PARAMS} cannot be used: {error.problems[0].what}")
        return None, ""
    if kept is None:
        return None, ""
    params = combine(kept, apart_on_devices(without_reference(states.frozen)))
    if params_sha256(params) == stated:
        return params, layout.TRAINED_PARAMS
    states.remarks.append(f"{layout.TRAINED_PARAMS} does not hold the parameters that the evaluation states")
    return None, ""
