"""Drawing completions while a run trains: the batch of each roll-out, what is written down of it, and a warning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from evidence.rewards import logged_rollout_steps
from schemas.render import as_sentence
from trainer.data.order import BatchSource, HostBatch
from trainer.loop.rollouts import Rollouts
from trainer.loop.step import Params, TrainState

FLAT_SHARE = 0.6
"""Groups without spread beyond which little is learned."""

FLAT_ROLLOUTS = 20
"""Roll-outs in a row beyond `FLAT_SHARE` after which the run's log states it."""


class DrawingRecorder(Protocol):
    """What takes down completions and events."""

    def completions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take the completions of a roll-out."""

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Take an event."""


class StepCompletions:
    """The completions of a run as its steps need them.

    Args:
        rollouts: draws and rewards them.
        recorder: takes down those of some steps, and what is odd about them.
    """

    def __init__(self, rollouts: Rollouts, recorder: DrawingRecorder) -> None:
        self._rollouts = rollouts
        self._recorder = recorder
        self._flat = 0
        steps = rollouts.task.config.limits.steps
        self._written = frozenset(logged_rollout_steps(steps, rollouts.objective.updates_per_rollout))
        self._figures: dict[str, float] = {}

    def is_due(self, step: int) -> bool:
        """Return whether the update after `step` steps needs new completions."""
        return self._rollouts.is_due(step)

    def batch(self, source: BatchSource, step: int, state: TrainState, frozen: Params) -> HostBatch:
        """Return what the update after `step` steps learns from: completions of the next prompts of the source."""
        prompts = source.batch(step // self._rollouts.objective.updates_per_rollout)
        drawn = self._rollouts.draw(step, prompts, state, frozen)
        self._figures = drawn.figures
        if step + 1 in self._written:
            self._recorder.completions(drawn.rows)
        for problem in drawn.failures:
            what = f"{problem.code}: {as_sentence(problem)}"
            self._recorder.log("warning", "reward_failed", what, code=problem.code, step=step + 1)
        self._flat = self._flat + 1 if drawn.figures["flat_groups"] > FLAT_SHARE else 0
        if self._flat == FLAT_ROLLOUTS:
            self._recorder.log("warning", "flat_rewards", self.why_flat, step=step + 1)
        return drawn.batch

    def row(self, done: int, named: dict[str, float | None], *, update_seconds: float) -> dict[str, float | None]:
        """Return the fields of the row of the step that is done, besides those of the update.

        Args:
            done: steps done.
            named: the update's own figures.
            update_seconds: how long it took.
        """
        is_first = self.is_due(done - 1)
        found: dict[str, float | None] = {**named, **self._figures, "update_seconds": update_seconds}
        if not is_first:
            found["rollout_seconds"] = 0.0
            del found["sampler_gap"]  # the parameters are no longer those that drew
        return found

    @property
    def stops(self) -> str | None:
        """Why the run ends before the next roll-out, None if it goes on."""
        stop = self._rollouts.objective.settings.stop_when_flat and self._flat >= FLAT_ROLLOUTS
        return self.why_flat if stop else None

    @property
    def why_flat(self) -> str:
        """What rewards without spread mean."""
        return (
            f"in {FLAT_ROLLOUTS} roll-outs in a row more than {FLAT_SHARE:.0%} of the groups had no spread: all "
            "completions of such a group are worth the same, and nothing is learned from them"
        )
