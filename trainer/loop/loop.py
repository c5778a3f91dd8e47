"""The training loop, with hooks that generate batches, log, evaluate and save.

The metrics of a step are read while the next step runs, so that the device never waits for the host. The loop waits
only where a state is saved or evaluated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from evidence.layout import PROFILE
from schemas.catalog import row_fields
from schemas.formats import quantity
from trainer.data.batches import BatchSource, HostBatch, PrefetchingSource
from trainer.loop.chain import LoopRecorder, StateWriter
from trainer.loop.nonfinite import NonfiniteError, find_nonfinite
from trainer.loop.optimizer import build_schedule, evaluate_schedule
from trainer.loop.rollouts import StepCompletions
from trainer.loop.session import StopRequest
from trainer.loop.step import Batch, Params, StepMetrics, TrainState
from trainer.loop.task import Task, batch_sharding, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.recorder.memory import MemoryWatch, device_memory_bytes
from trainer.recorder.recorder import Recorder, now
from trainer.recorder.sensors import DataWait

ALL_STEPS_DONE = "all steps done"

Step = Callable[[TrainState, Params, Batch], tuple[TrainState, StepMetrics]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the loop ended.

    Attributes:
        steps: Steps done, up to the one that failed.
        status: Status of the manifest: succeeded, failed or interrupted.
        because: Why the loop ended.
        seconds: Wall time of the loop, without compilation.
        error: Kind of failure, for the manifest's `exit.error`.
    """

    state: TrainState
    steps: int
    status: str
    because: str
    seconds: float
    error: str | None = None


class HeldOutPoint(NamedTuple):
    """A held-out evaluation after a step."""

    figures: dict[str, float | None]
    """Fields of the step's row."""
    answers: tuple[dict[str, Any], ...]
    """Rows of `answers_over_steps.jsonl`."""


class HeldOutMeasure(Protocol):
    """Hook that evaluates the model on held-out items."""

    def is_due(self, done: int) -> bool:
        """Return whether to evaluate after this many steps."""

    def measure(self, done: int, state: TrainState, frozen: Params) -> HeldOutPoint:
        """Evaluate the model after this many steps."""


class TimedSource:
    """A batch source that measures how long the loop waits for batches."""

    def __init__(self, source: BatchSource, wait: DataWait) -> None:
        self._source, self._wait = source, wait

    def batch(self, step: int) -> HostBatch:
        """Return the batch of a step."""
        began = time.perf_counter()
        batch = self._source.batch(step)
        self._wait.add(time.perf_counter() - began)
        return batch

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step."""
        return self._source.rows(step)

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding."""
        return self._source.tokens_before(step)


class _PendingRow(NamedTuple):
    """A row whose metrics are still being computed."""

    done: int
    metrics: StepMetrics
    figures: dict[str, float | None]
    computed: int
    """Tokens since the row before, padding included."""
    update_began: float


@dataclass(kw_only=True)
class MetricLog:
    """Hook that writes rows of metrics and finds non-finite ones.

    The row of a step is written while the next one runs, because reading its metrics waits for it.
    """

    task: Task
    source: BatchSource
    recorder: LoopRecorder
    progress: Callable[[int, int, float], None] = lambda done, total, loss: None
    """Called with steps done, steps planned and the loss after each row."""
    logged_at: Container[int] | None = None
    """Steps to log, or None for the first, the last and every `log_every_steps`-th."""
    ideal_seconds: float | None = None
    """Time of a step of the longest sequences at the devices' peak, if it is known."""
    generate: StepCompletions | None = None
    """Adds figures of completions to rows."""
    failure: NonfiniteError | None = None
    failed_step: int = 0
    step_seconds: float = 0.0
    """Mean time of a step between the last two rows."""
    _pending: _PendingRow | None = None

    def start(self, done: int) -> None:
        """Start the clock after so many steps."""
        self._first = self._logged = done
        self._computed = 0
        self._since = self._update_began = time.perf_counter()

    def start_update(self, tokens: int) -> None:
        """Count the tokens of a step that begins, padding included."""
        self._computed += tokens
        self._update_began = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of a block from the time of steps."""
        began = time.perf_counter()
        yield
        spent = time.perf_counter() - began
        self._since, self._update_began = self._since + spent, self._update_began + spent

    def is_due(self, done: int) -> bool:
        """Return whether a step has a row."""
        if self.logged_at is not None:
            return done in self.logged_at
        config = self.task.config
        return done in (self._first + 1, config.limits.steps) or done % config.recording.log_every_steps == 0

    def after_step(self, done: int, metrics: StepMetrics, figures: dict[str, float | None]) -> None:
        """Prepare the row of a step if it is due or has figures of an evaluation."""
        if figures or self.is_due(done):
            self._pending = _PendingRow(done, metrics, figures, self._computed, self._update_began)
            self._computed = 0

    def finish(self, done: int, metrics: StepMetrics | None) -> int:
        """Write the rows up to the last step, so that the result covers all steps, and return that step."""
        if self.failure is None:
            self.flush()
        if self.failure:
            done = self.failed_step  # the step after it, which may have begun, does not count
        if metrics is not None:
            if self._logged < done:
                self._pending = _PendingRow(done, metrics, {}, self._computed, self._update_began)
                self.flush()
            self.check(done, metrics)
        return done

    def find_failure(self, done: int, metrics: StepMetrics) -> NonfiniteError | None:
        """Return why the metrics of a step end the run, or None; waits for the step."""
        values: StepMetrics = jax.device_get(metrics)

        def rows(step: int) -> list[int]:
            return self.source.rows(step // max(1, self.task.objective.updates_per_rollout))

        return find_nonfinite(float(values.loss), float(values.grad_norm), values.named, step=done, rows=rows)

    def check(self, done: int, metrics: StepMetrics) -> None:
        """Note a failure if the metrics of a step are not finite; waits for the step."""
        if self.failure is None and (failure := self.find_failure(done, metrics)):
            self.failure, self.failed_step = failure, done

    def flush(self) -> None:
        """Write the pending row, if there is one; waits for its step."""
        if self._pending is None:
            return
        (done, metrics, figures, tokens, update_began), self._pending = self._pending, None
        values: StepMetrics = jax.device_get(metrics)
        self.check(done, values)
        at = time.perf_counter()
        steps, tokens_seen = done - self._logged, self._tokens_before(done)
        per_step, computed = (tokens_seen - self._tokens_before(self._logged)) / steps, tokens / steps
        seconds = self.step_seconds = (at - self._since) / steps
        self._since, self._logged = at, done
        row: dict[str, Any] = {
            "step": done,
            "tokens_seen": tokens_seen,
            "loss": _finite_or_none(values.loss),
            "learning_rate": evaluate_schedule(self._schedule, done - 1),
            "grad_norm": _finite_or_none(values.grad_norm),
            "step_seconds": seconds,
            "tokens_per_second": per_step / seconds,
        }
        if self.generate is None and self.ideal_seconds is not None:
            row["mfu"] = self.ideal_seconds * computed / self.task.tokens_per_step / seconds
        if len(self.task.lengths) > 1:
            row["tokens_per_step"] = computed
        if self.generate is None:
            row["padding_fraction"] = 1 - per_step / computed
        row["device_memory_bytes"] = device_memory_bytes(list(self.task.mesh.devices.flat))
        named = {name: _finite_or_none(value) for name, value in values.named.items() if name in self._row_fields}
        if self.generate is not None:
            named = self.generate.row(done, named, update_seconds=at - update_began)
        self.recorder.metric(row | named | figures | {"time": now()})
        self.progress(done, self.task.config.limits.steps, float(values.loss))

    def _tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding unless completions are sampled."""
        return self.source.tokens_before(step) if self.generate is None else step * self.task.tokens_per_step

    @cached_property
    def _schedule(self) -> Any:
        return build_schedule(self.task.config.optimizer, steps=self.task.config.limits.steps)

    @cached_property
    def _row_fields(self) -> frozenset[str]:
        return frozenset(each.name for each in row_fields())


@dataclass(kw_only=True)
class Loop:
    """The training loop of a run or a replayed segment."""

    task: Task
    step: Step
    """The compiled step; it consumes its state if the state is donated."""
    frozen: Params
    source: BatchSource
    stop: StopRequest
    log: MetricLog
    save: StateWriter
    evaluate: HeldOutMeasure | None = None
    generate: StepCompletions | None = None
    """Samples completions of prompts to learn from, or None to learn from the rows themselves."""
    last_step: int | None = None
    """Step to stop after, or None for the last step of the configuration."""
    memory: MemoryWatch | None = None
    wait: DataWait | None = None
    """Counts the time that the loop waits for batches."""
    best_step: int | None = None
    """Step with the best held-out figure so far; the first of equal ones."""
    _best: float = field(default=math.nan)

    def run(self, states: list[TrainState]) -> Outcome:
        """Train until the last step or a reason to stop.

        Args:
            states: A list with the first state only, which is removed, so that donation can free it.
        """
        with self.save, PrefetchingSource(self.source, steps=self.steps) as source:
            return self._run(source if self.wait is None else TimedSource(source, self.wait), states)

    @property
    def steps(self) -> int:
        """Step after which the loop ends."""
        return self.task.config.limits.steps if self.last_step is None else self.last_step

    def _run(self, source: BatchSource, states: list[TrainState]) -> Outcome:
        began = time.perf_counter()
        state = states.pop()
        first = done = int(state.step)
        self.log.start(first)
        metrics, because, batch = None, ALL_STEPS_DONE, {}
        for step in range(first, self.steps):
            if self.generate is None or self.generate.is_due(step):
                if reason := self._reason_to_stop():
                    because = reason if done > first else f"{reason} before the first step"
                    break
                batch = jax.device_put(self._next_batch(source, step, state), batch_sharding(self.task.mesh))
            self.log.start_update(batch["tokens"].size)
            state, metrics = self.step(state, self.frozen, batch)
            done = step + 1
            self.log.flush()  # while the devices work on this step
            self.save.raise_errors()
            if not self.log.failure:
                self._after_step(done, metrics, state)
            if self.log.failure:
                break
        done = self.log.finish(done, metrics)
        seconds = time.perf_counter() - began
        status, error = "succeeded" if because == ALL_STEPS_DONE else "interrupted", None
        if failure := self.log.failure:
            status, because, error = "failed", failure.because, failure.error
        return Outcome(state=state, steps=done, status=status, because=because, seconds=seconds, error=error)

    def _reason_to_stop(self) -> str | None:
        # The next step must not start if it and a checkpoint would not end in time.
        reason = self.stop.reason(reserve_seconds=self.log.step_seconds + self.save.seconds)
        return reason or (None if self.generate is None else self.generate.stops)

    def _next_batch(self, source: BatchSource, step: int, state: TrainState) -> HostBatch:
        if self.generate is None:
            return source.batch(step)
        with nullcontext() if self.memory is None else self.memory.during("rollout"):
            return self.generate.batch(source, step, state, self.frozen)

    def _after_step(self, done: int, metrics: StepMetrics, state: TrainState) -> None:
        """Evaluate, log and save if they are due; wait for the step only to evaluate, to save or to sample."""
        figures = self._evaluate(done, metrics, state)
        self.log.after_step(done, metrics, figures)
        saves, chains = self.save.is_saved(done), self.save.is_chained(done)
        if figures or saves or chains or self.generate is not None:
            self.log.flush()
            self.log.check(done, metrics)
        if self.log.failure:
            return
        is_best = self.best_step == done and self.save.checkpoints is not None
        saves = saves or (is_best and done < self.task.config.limits.steps)
        with self.log.paused():
            if is_best:
                self.save.keep_best(done)
            if saves or chains:
                self.save.submit(state, saved=saves)

    def _evaluate(self, done: int, metrics: StepMetrics, state: TrainState) -> dict[str, float | None]:
        """Evaluate held-out items if it is due, and return the figures for the step's row."""
        if self.evaluate is None or not self.evaluate.is_due(done) or self.log.find_failure(done, metrics):
            return {}
        with self.log.paused():
            point = self.evaluate.measure(done, state, self.frozen)
            self.log.recorder.answers(point.answers)
        name = self.task.config.checkpoint.keep_best
        value = None if name is None else point.figures.get(name)
        if value is None:
            return point.figures
        is_better = value > self._best if name == "held_out_score" else value < self._best
        if self.best_step is None or is_better:
            self._best, self.best_step = value, done
            message = f"best so far: {name} {value:.4f} at step {done}"
            self.log.recorder.log("info", "best_so_far", message, step=done, field=name, value=value)
        return point.figures


def train(loop: Loop, states: list[TrainState], recorder: Recorder) -> Outcome:
    """Run the loop, save its last state, and record the result."""
    loop.save.write(states[0], saved=False, params=recorder.manifest["model"]["weights_sha256"])
    outcome = loop.run(states)
    if outcome.status != "failed":
        params = params_sha256(combine(outcome.state.trained, drop_reference_params(loop.frozen)))
        loop.save.write(outcome.state, saved=True, params=params)
    elif int(outcome.state.step) == outcome.steps:
        # A state that is not finite is useless for resuming; the checkpoint before it is not.
        loop.save.write(outcome.state, saved=False)
    if loop.save.checkpoints is not None:
        loop.save.checkpoints.close()
    recorder.update("training", steps_done=outcome.steps)
    peak = None if loop.memory is None else loop.memory.peak_bytes()
    recorder.record_result(train_seconds=outcome.seconds, peak_memory_bytes=peak, stopped_because=outcome.because)
    recorder.log(
        "error" if outcome.status == "failed" else "info",
        "trained",
        f"{outcome.steps} steps in {outcome.seconds:.1f} s: {outcome.because}",
        train_seconds=outcome.seconds,
        peak_memory_bytes=peak,
    )
    return outcome


def trace_steps(step: Step, recorder: Recorder, *, steps: int | None) -> Step:
    """Return a step that traces `steps` calls from the second one on into the run folder; None traces nothing."""
    if steps is None:
        return step
    numbers, trace, traced = count(1), ExitStack(), 0
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # Python calls would hide what the devices do

    def traced_step(state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        nonlocal traced
        number = next(numbers)
        if number == 2:
            trace.enter_context(jax.profiler.trace(str(recorder.folder / PROFILE), profiler_options=options))
        if not 2 <= number < 2 + steps:
            return step(state, frozen, batch)
        with jax.profiler.StepTraceAnnotation("step", step_num=number):
            done = step(state, frozen, batch)
        traced += 1
        if traced == steps:
            jax.block_until_ready(done)
            trace.close()
        return done

    def finish() -> None:
        trace.close()
        message = f"profile of {quantity(traced, 'step')}: {PROFILE}" if traced else "no profile: one step is too few"
        recorder.log("info", "profiled", message, steps=traced)

    recorder.before_seal.append(finish)
    return traced_step


def _finite_or_none(value: jax.Array | np.ndarray) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
