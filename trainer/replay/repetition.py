"""Replay segments of a run with its own training step, and compare each row and state with the recorded one.

Other CPU instructions or another number of threads change the order of additions. The loss of the first step then
differs in its last bits, and training amplifies that, so the tolerance grows with the steps since a common state.
`benchmarks/replay_tolerance.py` writes `tolerances.json`: for each compute dtype, the largest relative difference
measured up to some number of steps, and a safety factor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError

from evidence import layout
from schemas.problems import ProblemError, problem_of
from trainer.evaluation.evaluate import build_held_out
from trainer.loop.chain import Segment, StateWriter, read_state, saved_state_steps, state_path
from trainer.loop.checkpoints import UNREADABLE, checkpoint_steps, restore_checkpoint, state_sha256, to_stored
from trainer.loop.compilation import Steps
from trainer.loop.loop import Loop
from trainer.loop.rollouts import StepCompletions, build_rollouts
from trainer.loop.session import StopRequest
from trainer.loop.state import REFUSED, initial_state, state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import Task, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.model.stacks import Params, unstack_on_devices
from trainer.objectives.data import Data
from trainer.recorder.recorder import Recorder
from trainer.replay.recorded import RecordedRun

FLOOR = 1e-6
"""Smallest denominator of a relative difference."""

MACHINE_FIELDS = frozenset(
    {"step_seconds", "tokens_per_second", "mfu", "device_memory_bytes", "time", "clock_seconds"}
    | {"rollout_seconds", "update_seconds", "held_out_seconds"}
)
"""Fields of a row that depend on the machine and are not compared."""

AVERAGED_FIELDS = frozenset({"padding_fraction", "tokens_per_step"})
"""Fields that average over all steps since the row before."""
EXACT_FIELDS = frozenset({"step", "tokens_seen"}) | AVERAGED_FIELDS
"""Fields that count data and are equal on every machine."""

DATA_FIELDS = ("padding_fraction", "tokens_per_step", "tokens_seen")
FIELD_NAMES: Mapping[str, str] = {
    **dict.fromkeys(DATA_FIELDS, "training data"),
    "loss": "loss",
    "grad_norm": "gradient",
    "learning_rate": "learning rate",
}
"""Names of fields for messages, in the order in which a step computes them."""

Verdict = Literal["identical", "within tolerance", "different", "not tried"]


class FieldDifference(NamedTuple):
    """A value of a row that the replay does not reproduce."""

    step: int
    field: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Tolerance of one compute dtype."""

    factor: float
    """Factor by which the measured differences may be exceeded."""
    least: float
    """Smallest tolerance: a few units in the last place of float32, in which losses and norms are summed."""
    measured: Mapping[str, Sequence[tuple[int, float]]]
    """Largest relative difference by field, as pairs of (maximum number of steps, difference), ascending."""

    @property
    def max_steps(self) -> int:
        """Largest number of steps that was measured."""
        return max(steps for pairs in self.measured.values() for steps, _ in pairs)

    def allowed(self, field: str, *, steps: int) -> float:
        """Return the largest accepted relative difference after some steps; unmeasured fields use the loss."""
        pairs = self.measured.get(field, self.measured["loss"])
        seen = next((worst for most, worst in pairs if steps <= most), pairs[-1][1])
        return max(self.factor * seen, self.least)

    def accepts(self, difference: FieldDifference, *, steps: int) -> bool:
        """Return whether other hardware explains a difference some steps after a common state."""
        if difference.field in EXACT_FIELDS:
            return False
        recorded, replayed = difference.recorded, difference.replayed
        allowed = self.allowed(difference.field, steps=steps)
        if not (isinstance(recorded, int | float) and isinstance(replayed, int | float)):
            return allowed >= 1  # one of them is not finite, a relative difference of 1
        return abs(recorded - replayed) <= allowed * max(abs(recorded), abs(replayed), FLOOR)


@cache
def load_tolerance(compute: str) -> Tolerance:
    """Load the tolerance of a compute dtype: float32, bfloat16 or float16."""
    table: dict[str, Any] = json.loads((files("trainer") / "replay" / "tolerances.json").read_text(encoding="utf-8"))
    return Tolerance(factor=table["factor"], least=table["least"], measured=table["measured"][compute])


TOO_FAR = (
    "No tolerance was measured for so many steps after a common state on another processor. Replay the run on the same "
    "kind of processor, or from its checkpoints."
)
SAMPLED_OTHERWISE = (
    "On another processor other tokens are sampled now and then, and the completions and rewards that follow say "
    "nothing about this run. Replay it where its programs are compiled for the same instructions."
)
"""Why replayed segments count as not tried."""


@dataclass(kw_only=True)
class RecordedStates:
    """The states from which a replay can start: the initial one, checkpoints, and states saved or sent for judges."""

    run: RecordedRun
    task: Task
    sent: Path | None = None
    """Folder with the states that the author sent, or None."""
    warnings: list[str] = field(default_factory=list)
    """States that could not be used, and why."""

    @cached_property
    def frozen(self) -> Params:
        """Frozen parameters, initialized or loaded, and the parameters of a reference model."""
        return initial_state(self.task)[1] if self.task.frozen else {}

    @property
    def steps(self) -> list[int]:
        """Starts of segments, and the end of the run, for which a state is available; the states are not read."""
        places = {segment.first_step for segment in self.run.segments} | {self.run.last_step}
        available = {step for step, _, _ in self._candidates()} & places & self.run.states.keys()
        return sorted(available | ({0} if self.run.first_step == 0 else set()))

    def load(self, step: int) -> TrainState | None:
        """Load the state after a step, or return None if no available state has the hash in the chain."""
        if step == 0 and self.run.first_step == 0:
            [initial], _ = initial_state(self.task)
            return initial
        for found, name, read in self._candidates():
            if found != step:
                continue
            try:
                state = read()
            except (*UNREADABLE, SafetensorError) as error:
                error.with_traceback(None)
                self.warnings.append(f"{name} cannot be used ({type(error).__name__})")
                continue
            if state_sha256(to_stored(state)) == self.run.states.get(step):
                return state
            self.warnings.append(f"{name} is not the state in the chain")
        return None

    def _candidates(self) -> Iterator[tuple[int, str, Callable[[], TrainState]]]:
        """Yield step, name and reader of each state that was sent or is in the folders of the run and its parent."""
        shapes, own = state_shapes(self.task), self.run.folder
        folders = [("saved", own)] if self.sent is None else [("sent", self.sent), ("saved", own)]
        for kind, folder in folders:
            for step in saved_state_steps(folder):
                yield step, f"the state {kind} for step {step}", partial(read_state, state_path(folder, step), shapes)
        checkpoints = [(own, step) for step in checkpoint_steps(own)]
        if (parent := self.run.manifest["parent"]) is not None:
            folder = own.resolve().parent / parent["run_id"]
            if (folder / layout.CHECKPOINTS / str(parent["step"])).is_dir():
                checkpoints.append((folder, parent["step"]))
        for folder, step in checkpoints:
            yield step, f"the checkpoint at step {step}", partial(restore_checkpoint, folder, step, shapes)

    def require_sent_states(self) -> None:
        """Raise `ProblemError` with exit code 3 if a state that the author sent is not the one in the chain."""
        for step in saved_state_steps(self.sent) if self.sent else ():
            self.load(step)
        if self.warnings:
            sentences = (f"{each[0].upper()}{each[1:]}." for each in self.warnings)
            problems = [problem_of("TP764", file=str(self.run.folder), what=each) for each in sentences]
            raise ProblemError(problems, exit_code=REFUSED)

    def model_params(self, state: TrainState) -> Params:
        """Return all parameters of the model in a state, with unstacked layers."""
        return unstack_on_devices(combine(state.trained, drop_reference_params(self.frozen)))


@dataclass(frozen=True, kw_only=True)
class SegmentResult:
    """The result of replaying a segment."""

    segment: Segment
    verdict: Verdict
    seconds: float = 0.0
    difference: str = ""
    """Description of the first difference; empty if nothing differs."""

    def document(self) -> dict[str, Any]:
        """Return the entry of a receipt's group `segments`."""
        document: dict[str, Any] = {**self.segment.document(), "verdict": self.verdict}
        document |= {} if self.verdict == "not tried" else {"seconds": round(self.seconds, 3)}
        return document | ({"difference": self.difference} if self.difference else {})

    def __str__(self) -> str:
        text = f"{self.segment.name}: {self.verdict} ({self.seconds:.1f} s)"
        return f"{text}\n  {self.difference}" if self.difference else text


class InMemoryRecorder(Recorder):
    """A recorder of the training loop that keeps rows and hashes of states, and writes nothing."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.states: dict[int, str] = {}

    def metric(self, row: dict[str, Any]) -> None:
        """Keep the row of a step."""
        self.rows.append(row)

    def link(self, **entry: Any) -> None:
        """Keep the hash of a state."""
        self.states[entry["step"]] = entry["state_sha256"]

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Write nothing; the row of a step has the scores and losses of its completions and answers."""

    log = append = _ignore


@dataclass(kw_only=True)
class Repetition:
    """A run that is being replayed, segment by segment."""

    states: RecordedStates
    data: Data
    steps: Steps
    is_exact: bool = True
    stop: StopRequest = field(default_factory=lambda: StopRequest(max_minutes=None))
    progress: Callable[[int, int, float], None] = lambda done, total, loss: None
    """Called with steps done, steps of the run and the loss after each row."""
    found: dict[int, SegmentResult] = field(default_factory=dict)
    """Results by number of the segment; of the first steps of a segment if it was judged in part."""
    _state: TrainState | None = None
    _step: int = -1
    _common_step: int = 0
    """Last step at which the current state was a recorded one."""

    def __post_init__(self) -> None:
        self.run, self.task = self.states.run, self.states.task
        self.rollouts = build_rollouts(self.task, self.data)
        self.held_out = build_held_out(self.task, self.data)
        self.tolerance = load_tolerance(self.run.manifest["model"]["dtypes"]["compute"])

    def repeat(self, segment: Segment) -> Iterator[SegmentResult]:
        """Replay a segment from the nearest available state and yield the result of each segment on the way.

        Segments without an earlier state are skipped.
        """
        available = [step for step in self.states.steps if step <= segment.first_step]
        if self._state is not None and self._step <= segment.first_step:
            available.append(self._step)
        if not available:
            return
        begin = max(available)
        is_common = self.is_exact or self._common_step == begin or begin not in self.states.steps
        if begin != self._step or not is_common:
            self._state = None  # frees its memory before the next one is loaded
            self._state = self.states.load(begin)
            self._step = self._common_step = begin
        for each in self.run.segments:
            if begin <= each.first_step <= segment.first_step:
                if (result := self._repeat_one(each)) is None:
                    return
                self.found[each.number] = result
                yield result

    def current_state(self, step: int) -> TrainState | None:
        """Return the current state if it is the one after a step, else None."""
        return self._state if self._step == step else None

    def results(self) -> list[SegmentResult]:
        """Return the results of all segments in order; one that was judged in part has two."""
        results = []
        for segment in self.run.segments:
            judged = segment.first_step
            if (result := self.found.get(segment.number)) is not None:
                results.append(result)
                judged = result.segment.last_step
            if judged != segment.last_step:
                results.append(SegmentResult(segment=replace(segment, first_step=judged), verdict="not tried"))
        return results

    def _repeat_one(self, segment: Segment) -> SegmentResult | None:
        """Replay the segment that begins at the current state; return None without a state or a row."""
        if self._state is None:
            return None
        began, recorder = time.perf_counter(), InMemoryRecorder()
        loop = Loop(
            task=self.task,
            step=self.steps,
            frozen=self.states.frozen,
            source=self.data.source,
            stop=self.stop,
            save=StateWriter(task=self.task, recorder=recorder),
            evaluate=self.held_out,
            generate=None if self.rollouts is None else StepCompletions(self.rollouts, recorder),
            last_step=segment.last_step,
            logged_at=self.run.rows,
            progress=self.progress,
        )
        states, self._state = [self._state], None  # the list has the only reference, so that donation can free it
        outcome = loop.run(states)
        seconds = time.perf_counter() - began
        if outcome.status == "interrupted":
            last = max((row["step"] for row in recorder.rows if row["step"] in self.run.rows), default=None)
            if last is None:
                return None
            return self._judge(replace(segment, last_step=last), recorder.rows, seconds, is_same=None)
        self._step = int(outcome.state.step)
        reached = recorder.states.get(self._step) or state_sha256(to_stored(outcome.state))
        is_same = self._is_recorded(segment.last_step, outcome.state, reached)
        result = self._judge(segment, recorder.rows, seconds, is_same=is_same)
        if is_same:
            self._common_step = self._step
        # Segments after another state would differ too, which says nothing about the run.
        self._state = None if result.verdict == "different" and is_same is not True else outcome.state
        return result

    def _is_recorded(self, step: int, state: TrainState, sha256: str) -> bool | None:
        """Return whether a state is the recorded one, or None if neither its hash nor its parameters' is recorded."""
        recorded = self.run.states.get(step)
        agrees = None if recorded is None else recorded == sha256
        if step in self.run.params and agrees is not False:
            return params_sha256(self.states.model_params(state)) == self.run.params[step]
        return agrees

    def _judge(
        self, segment: Segment, rows: Sequence[dict[str, Any]], seconds: float, *, is_same: bool | None
    ) -> SegmentResult:
        """Return the verdict on a segment, or on its first steps if the later ones lack a tolerance.

        `is_same` is whether its last state is the recorded one, or None if that is unknown.
        """
        differences = self._differences(segment, rows)
        if not differences and is_same is not False:
            return SegmentResult(segment=segment, verdict="identical", seconds=seconds)
        verdict: Verdict = "different"
        if not self.is_exact:
            until = self._common_step + self.tolerance.max_steps
            # Between equal states, every row began where the recorded one did.
            is_far = [not is_same and each.step > until and each.field not in EXACT_FIELDS for each in differences]
            if all(
                far or self.tolerance.accepts(each, steps=1 if is_same else each.step - self._common_step)
                for each, far in zip(differences, is_far, strict=True)
            ):
                judged = [step for step in self.run.rows if segment.first_step < step <= until]
                if any(is_far) and not judged:
                    return SegmentResult(segment=segment, verdict="not tried", difference=TOO_FAR)
                verdict = "within tolerance"
                if any(is_far):  # rows without a tolerance do not count as reproduced
                    segment = replace(segment, last_step=max(judged))
            elif self.rollouts and not is_same:
                return SegmentResult(segment=segment, verdict="not tried", difference=SAMPLED_OTHERWISE)
        until = min([segment.last_step, *(each.step for each in differences)])
        agreed = max([segment.first_step, *(step for step in self.run.rows if segment.first_step < step < until)])
        difference = describe_difference(differences, is_same_state=is_same, agreed=agreed, step=segment.last_step)
        return SegmentResult(segment=segment, verdict=verdict, seconds=seconds, difference=difference)

    def _differences(self, segment: Segment, rows: Sequence[dict[str, Any]]) -> list[FieldDifference]:
        """Return the recorded values of a segment's rows that differ in any bit from the replayed ones."""
        replayed = {row["step"]: row for row in rows}
        steps = [step for step in sorted(self.run.rows) if segment.first_step < step <= segment.last_step]
        before = max((step for step in self.run.rows if step <= segment.first_step), default=self.run.first_step)
        differences = []
        for step in steps:
            recorded, skipped = self.run.rows[step], MACHINE_FIELDS
            if step == steps[0] and before != segment.first_step:
                skipped |= AVERAGED_FIELDS  # averages since the row before, which is in an earlier segment
            for name in dict.fromkeys([*FIELD_NAMES, *sorted(recorded)]):
                value, other = recorded.get(name), replayed.get(step, {}).get(name)
                if name in recorded and name not in skipped and value != other:
                    differences.append(FieldDifference(step, name, value, other))
        return differences


def describe_difference(
    differences: Sequence[FieldDifference], *, is_same_state: bool | None, agreed: int, step: int
) -> str:
    """Describe the first difference of a segment that ends with `step` and whose rows are equal up to step `agreed`."""
    if not differences:
        where = f"step {step}" if step == agreed + 1 else f"steps {agreed + 1} to {step}"
        return (
            f"The state after step {step} is not the one in the chain, although every row up to it is equal: the "
            f"update of {where} differs (optimizer, learning rate, clipping or rounding)."
        )
    first = differences[0]
    began = f" (the training differs from step {agreed + 1} or later)" if first.step > agreed + 1 else ""
    recorded, replayed = ("null" if value is None else repr(value) for value in (first.recorded, first.replayed))
    text = (
        f"Step {first.step} is the first row that differs{began}, in its {FIELD_NAMES.get(first.field, first.field)}: "
        f"{first.field} is {recorded} in the run and {replayed} here."
    )
    if is_same_state:
        return f"{text} The state after step {step} is the one in the chain, so the row is not what training measured."
    more = len({each.step for each in differences}) - 1
    return f"{text} Later rows that differ: {more:,}." if more else text
