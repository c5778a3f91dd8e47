"""What a run measures of itself while it trains: at some steps, apart from the time of the steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from trainer.loop.spoiled import spoiled_by
from trainer.loop.step import Params, StepMetrics, TrainState
from trainer.loop.stopwatch import Stopwatch


class HeldOutPoint(NamedTuple):
    """What was measured after a step."""

    figures: dict[str, float | None]
    """Fields of the step's row."""
    answers: tuple[dict[str, Any], ...]
    """Rows of `answers_over_steps.jsonl`."""


class HeldOutMeasure(Protocol):
    """What measures a model on items that it does not learn from."""

    def is_due(self, done: int) -> bool:
        """Return whether it measures after this many steps."""

    def measure(self, done: int, state: TrainState, frozen: Params) -> HeldOutPoint:
        """Return what the model after this many steps is worth."""


class AnswerRecorder(Protocol):
    """What takes down answers and events."""

    def answers(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take the answers of a point."""

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Take an event."""


class HeldOutPoints:
    """The points that a loop measures, and which of them is the best.

    Args:
        measure: what measures. None: nothing does.
        recorder: takes down the answers.
        best_by: the field by which a point is the best so far. None: no point is compared.
    """

    def __init__(self, measure: HeldOutMeasure | None, recorder: AnswerRecorder, best_by: str | None) -> None:
        self._measure = measure
        self._recorder = recorder
        self._best_by = best_by
        self._best: float | None = None
        self.best_step: int | None = None
        """The best so far; the first of equal ones. None: no point was compared."""

    def after(
        self, done: int, metrics: StepMetrics, state: TrainState, frozen: Params, watch: Stopwatch
    ) -> dict[str, float | None]:
        """Return what a step's row states of the model after it; empty where nothing is due, or numbers are not finite.

        Args:
            done: steps.
            metrics: of the last one; waited for, so that its time counts to the step.
            state: after it.
            frozen: the parameters that do not learn.
            watch: leaves the time out.
        """
        if self._measure is None or not self._measure.is_due(done) or spoiled_by(metrics, step=done):
            return {}
        with watch.left_out():
            point = self._measure.measure(done, state, frozen)
            self._recorder.answers(point.answers)
        self._compare(done, point)
        return point.figures

    def _compare(self, done: int, point: HeldOutPoint) -> None:
        value = None if self._best_by is None else point.figures.get(self._best_by)
        if value is None:
            return
        rises = self._best_by == "held_out_score"
        if self._best is None or (value > self._best if rises else value < self._best):
            self._best, self.best_step = value, done
            said = f"best so far: {self._best_by} {value:.4f} at step {done}"
            self._recorder.log("info", "best_so_far", said, step=done, field=self._best_by, value=value)
