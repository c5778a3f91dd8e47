"""Repeating segments of a run with its own program, and holding every row and every state against what it states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.data.order import BatchSource
from trainer.evaluation.evaluate import HeldOut
from trainer.loop.chain import Segment
from trainer.loop.checkpoints import state_sha256, to_stored
from trainer.loop.loop import Loop
from trainer.loop.programs import Steps
from trainer.loop.rollouts import Rollouts
from trainer.loop.session import StopRequest
from trainer.loop.step import TrainState
from trainer.loop.task import Task
from trainer.replay.difference import (
    EXACT,
    FieldDifference,
    Tolerance,
    Verdict,
    is_tolerated,
    locate_difference,
    row_differences,
    tolerance_of,
)
from trainer.replay.recorded import RecordedRun
from trainer.replay.states import States

TOO_FAR = (
    "On another processor, steps so long after a common state cannot be judged: repeat the run on such a machine, or "
    "from its checkpoints."
)
DRAWN_OTHERWISE = (
    "On another processor the last bits of a probability differ, so that now and then another token is drawn: its "
    "completion, its reward and all that follows are of another run and say nothing of this one. Repeat it where its "
    "programs are compiled for the same instructions."
)
"""Why segments that were repeated count as not tried."""


@dataclass(frozen=True, kw_only=True)
class SegmentResult:
    """What came of one segment."""

    segment: Segment
    verdict: Verdict
    seconds: float = 0.0
    difference: str = ""
    """Where it differs, in words; empty where nothing does."""
    worst: tuple[FieldDifference, ...] = ()
    """Every value that has other bits."""

    def document(self) -> dict[str, Any]:
        """Return it as a receipt holds it."""
        said = {"difference": self.difference} if self.difference else {}
        tried = {} if self.verdict == "not tried" else {"seconds": round(self.seconds, 3)}
        return {**ends(self.segment), "verdict": self.verdict, **tried, **said}


@dataclass(kw_only=True)
class RepeatedRows:
    """What the loop reports while it repeats: nothing is written."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)

    def metric(self, row: dict[str, Any]) -> None:
        """Keep the row of a step."""
        self.rows.append(row)

    def rows_so_far(self) -> None:
        """Have no rows that an entry could state."""

    def link(self, *, step: int, state_sha256: str, **_: Any) -> None:
        """Keep the hash of a state."""
        self.states[step] = state_sha256

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Let an event go by."""

    def completions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Let the completions of a roll-out go by."""

    def answers(self, rows: Iterable[dict[str, Any]]) -> None:
        """Let answers go by: score and loss of their point stand in the step's row."""

    def sync(self) -> None:
        """Have nothing to keep."""


@dataclass(kw_only=True)
class Repetition:
    """A run that is being repeated."""

    run: RecordedRun
    task: Task
    steps: Steps
    source: BatchSource
    states: States
    stop: StopRequest
    rollouts: Rollouts | None = None
    """Draws completions of prompts. None: nothing is drawn."""
    held_out: HeldOut | None = None
    """Measures the model at some steps. None: the run does not."""
    is_exact: bool
    """Whether every bit must be equal."""
    progress: Callable[[int, int, float], None]
    """Called with steps done, steps of the run and the loss after each row."""
    found: dict[int, SegmentResult] = field(default_factory=dict)
    """What came of the segments so far, by their number."""
    part: SegmentResult | None = None
    """What came of the beginning of a segment within which it was stopped."""
    _here: TrainState | None = None
    _step: int = -1
    _since: int = 0
    """The step at which the state was one of the run's own."""

    def repeat(self, segment: Segment) -> Iterator[SegmentResult]:
        """Repeat a segment, and those before it where it can only be reached through them; yield what came of each.

        Nothing is yielded for a segment that cannot be reached, or that was not ended in time.
        """
        begin = self._nearest(segment)
        if begin is None:
            return
        if begin != self._step or self._is_far_from(begin):
            self._here = None  # its memory is needed
            self._here = self.states.at(begin)
            self._step = self._since = begin
            if self._here is None:
                return
        for each in self.run.segments:
            if begin <= each.first_step <= segment.first_step:
                came = self._one(each)
                if came is None:
                    return
                self.found[each.number] = came
                yield came
                if self._here is None:
                    return

    def _is_far_from(self, step: int) -> bool:
        """Return whether the state at hand is not the run's own, and one of the run's own is there for this step."""
        return not self.is_exact and self._since != step and step in self.states.steps

    def at(self, step: int) -> TrainState | None:
        """Return the state at hand if it is that after a step."""
        return self._here if self._step == step else None

    def is_stated(self, state: TrainState) -> bool:
        """Return whether a state is the one that the chain states after its step."""
        return self.run.states.get(int(state.step)) == state_sha256(to_stored(state))

    def _nearest(self, segment: Segment) -> int | None:
        """Return the last step up to a segment at which there is a state: one at hand, or one that can be read."""
        there = [step for step in self.states.steps if step <= segment.first_step]
        if self._here is not None and self._step <= segment.first_step:
            there.append(self._step)
        return max(there, default=None)

    def _one(self, segment: Segment) -> SegmentResult | None:
        """Repeat the segment that begins at the state at hand; None where it was stopped within it."""
        if self._here is None:
            return None
        began, kept = time.perf_counter(), RepeatedRows()
        loop = Loop(
            task=self.task,
            step=self.steps,
            frozen=self.states.frozen,
            source=self.source,
            rollouts=self.rollouts,
            held_out=self.held_out,
            recorder=kept,
            checkpoints=None,
            stop=self.stop,
            progress=self.progress,
            last_step=segment.last_step,
            logged_at=self.run.rows,
        )
        held, self._here = [self._here], None
        outcome = loop.run(held)
        if outcome.status == "interrupted":
            self.part = self._part(segment, kept.rows, time.perf_counter() - began)
            return None
        state, self._step = outcome.state, int(outcome.state.step)
        reached = kept.states.get(self._step) or state_sha256(to_stored(state))
        same = self._same(segment, state, reached)
        came = self._judged(segment, kept.rows, time.perf_counter() - began, same=same)
        if same:
            self._since = self._step
        # What follows from another state would differ too, and state nothing of the run.
        self._here = None if came.verdict == "different" and same is not True else state
        return came

    def _part(self, segment: Segment, rows: Sequence[dict[str, Any]], seconds: float) -> SegmentResult | None:
        """Return what came of a segment up to the last row that the run has too, or None if it is missing."""
        last = max((row["step"] for row in rows if row["step"] in self.run.rows), default=None)
        if last is None:
            return None
        return self._judged(replace(segment, last_step=last), rows, seconds, same=None)

    def _same(self, segment: Segment, state: TrainState, reached: str) -> bool | None:
        """Return whether a state is the one that the run states at the end of a segment, None where it states none."""
        stated = self.run.states.get(step := segment.last_step)
        agrees = None if stated is None else stated == reached
        if step in self.run.params and agrees is not False:
            return self.states.params_sha256(state) == self.run.params[step]
        return agrees

    def _judged(
        self, segment: Segment, rows: Sequence[dict[str, Any]], seconds: float, *, same: bool | None
    ) -> SegmentResult:
        """Return the verdict on a segment.

        Args:
            segment: which.
            rows: of the repetition.
            seconds: it took.
            same: whether the state at its end is the run's; None: it states none.
        """
        differences = self._differences(segment, rows)
        if not differences and same is not False:
            return SegmentResult(segment=segment, verdict="identical", seconds=seconds)
        verdict: Verdict = "different"
        if not self.is_exact:
            # From the same state to the same state, each row began where the run's did.
            near, beyond = (differences, []) if same else self._near(differences)
            if self._all_tolerated(near, since_last=bool(same)):
                if beyond and not self._is_near(segment):
                    return SegmentResult(segment=segment, verdict="not tried", difference=TOO_FAR)
                verdict = "within tolerance"
                if beyond:  # what no tolerance can judge does not speak for the run
                    segment = replace(segment, last_step=self._judged_until(segment))
            elif self.rollouts and not same:
                return SegmentResult(segment=segment, verdict="not tried", difference=DRAWN_OTHERWISE)
        agreed = max([segment.first_step, *self._agreed(segment, differences)])
        return SegmentResult(
            segment=segment,
            verdict=verdict,
            seconds=seconds,
            difference=locate_difference(differences, is_same_state=same, agreed=agreed, step=segment.last_step),
            worst=tuple(differences),
        )

    def _differences(self, segment: Segment, rows: Sequence[dict[str, Any]]) -> list[FieldDifference]:
        found = {row["step"]: row for row in rows}
        stated = [step for step in sorted(self.run.rows) if segment.first_step < step <= segment.last_step]
        before = max((step for step in self.run.rows if step <= segment.first_step), default=self.run.first_step)
        differences: list[FieldDifference] = []
        for step in stated:
            # A row counts the steps since the one before, which may lie in the segment before.
            is_whole = step != stated[0] or before == segment.first_step
            differences += row_differences(self.run.rows[step], found.get(step, {}), is_whole=is_whole)
        return differences

    def _agreed(self, segment: Segment, differences: Sequence[FieldDifference]) -> list[int]:
        """Return the steps of a segment whose rows are equal, up to the first that differs."""
        until = min((each.step for each in differences), default=segment.last_step + 1)
        return [step for step in self.run.rows if segment.first_step < step < until and step < segment.last_step]

    def _near(self, differences: Sequence[FieldDifference]) -> tuple[list[FieldDifference], list[FieldDifference]]:
        """Return the differences that a tolerance can judge, and those so long after a common state that none can."""
        most = self._tolerance.most_steps
        far = [each for each in differences if each.step - self._since > most and each.field not in EXACT]
        return [each for each in differences if each not in far], far

    def _is_near(self, segment: Segment) -> bool:
        """Return whether a segment has a row that a tolerance can judge."""
        until = self._since + self._tolerance.most_steps
        return any(segment.first_step < step <= until for step in self.run.rows)

    def _judged_until(self, segment: Segment) -> int:
        """Return the last step of a segment whose row a tolerance can judge."""
        until = self._since + self._tolerance.most_steps
        return max(step for step in self.run.rows if segment.first_step < step <= until)

    @property
    def _tolerance(self) -> Tolerance:
        return tolerance_of(self.run.manifest["model"]["dtypes"]["compute"])

    def _all_tolerated(self, differences: Sequence[FieldDifference], *, since_last: bool) -> bool:
        return all(
            is_tolerated(each, self._tolerance, steps=1 if since_last else each.step - self._since)
            for each in differences
        )


def line_of(each: SegmentResult) -> str:
    """Return what came of a segment, on a line."""
    said = f"{each.segment.name}: {each.verdict} ({each.seconds:.1f} s)"
    return f"{said}\n  {each.difference}" if each.difference else said


def ends(segment: Segment) -> dict[str, int]:
    """Return where a segment begins and ends, as a receipt states it."""
    return {"first_step": segment.first_step, "last_step": segment.last_step}
