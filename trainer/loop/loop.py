"""The training loop: read or sample a batch, step, log, evaluate, save.

The metrics of a step are read while the next step runs, so that the device never waits for the host. The loop waits
only where a state is saved or evaluated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from evidence.layout import ANSWERS_OVER_STEPS, PROFILE
from schemas.catalog import row_fields
from schemas.formats import duration, quantity
from trainer.data.batches import HostBatch, PrefetchingSource, RowSource
from trainer.distributed import place
from trainer.loop.chain import StateWriter
from trainer.loop.optimizer import build_schedule, evaluate_schedule
from trainer.loop.rollouts import StepCompletions
from trainer.loop.session import StopRequest
from trainer.loop.step import Batch, NonfiniteError, Params, StepMetrics, TrainState, find_nonfinite
from trainer.loop.task import Task, batch_sharding, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.recorder.recorder import Recorder, now
from trainer.recorder.sensors import DataWait, MemoryWatch, device_memory_bytes

ALL_STEPS_DONE = "all steps done"

Step = Callable[[TrainState, Params, Batch], tuple[TrainState, StepMetrics]]

Evaluation = Callable[[int, TrainState, Params], tuple[dict[str, float | None], Sequence[dict[str, Any]]]]
"""Function from steps done, state and frozen parameters to fields of the step's row and held-out answers."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the loop ended: steps done (up to one that failed), and status and kind of failure of the manifest.

    `seconds` is the wall time of the loop, without compilation.
    """

    state: TrainState
    steps: int
    status: str
    because: str
    seconds: float
    error: str | None = None


class _PendingRow(NamedTuple):
    """A row whose metrics are still being computed."""

    done: int
    metrics: StepMetrics
    figures: dict[str, float | None]
    computed: int
    update_began: float


@dataclass(kw_only=True)
class Loop:
    """The training loop of a run or a replayed segment."""

    task: Task
    step: Step
    """The compiled step; it consumes its state if the state is donated."""
    frozen: Params
    source: RowSource
    stop: StopRequest
    save: StateWriter
    """Writes states; its recorder gets the rows too."""
    evaluate: Evaluation | None = None
    generate: StepCompletions | None = None
    """Samples completions to learn from, or None to learn from the rows themselves."""
    last_step: int | None = None
    """Step to stop after, or None for the last step of the configuration."""
    logged_at: Container[int] | None = None
    """Steps to log, or None for the first, the last and every `log_every_steps`-th."""
    progress: Callable[[int, int, float], None] = lambda done, total, loss: None
    """Called with steps done, steps planned and the loss after each row."""
    ideal_seconds: float | None = None
    """Time of a step of the longest sequences at the devices' peak, if it is known."""
    memory: MemoryWatch | None = None
    wait: DataWait | None = None
    failure: NonfiniteError | None = None
    """Why the metrics of a step end the run, or None."""
    step_seconds: float = 0.0
    """Mean time of a step between the last two rows."""
    best_step: int | None = None
    """Step with the best held-out figure so far; the first of equal ones."""
    _best: float = math.nan
    _pending: _PendingRow | None = None
    _computed: int = 0
    """Tokens since the last row, padding included."""

    def run(self, states: list[TrainState]) -> Outcome:
        """Train until the last step or a reason to stop; its list loses the state, so that it can be donated."""
        limit = self.task.config.limits.steps if self.last_step is None else self.last_step
        with self.save, PrefetchingSource(self.source.batch, steps=limit) as source:
            began = self._since = time.perf_counter()
            state = states.pop()
            first = done = self._first = self._logged = int(state.step)
            metrics, because, batch = None, ALL_STEPS_DONE, {}
            for step in range(first, limit):
                if self.generate is None or self.generate.is_due(step):
                    # The next step must not start if it and a checkpoint would not end in time.
                    reason = self.stop.reason(reserve_seconds=self.step_seconds + self.save.seconds)
                    if reason := reason or (None if self.generate is None else self.generate.stops):
                        because = reason if done > first else f"{reason} before the first step"
                        break
                    batch = place(self._next_batch(source, step, state), batch_sharding(self.task.mesh))
                if step == first and self.memory is not None:
                    self.memory.begins("train")
                self._computed += batch["tokens"].size
                self._update_began = time.perf_counter()
                state, metrics = self.step(state, self.frozen, batch)
                done = step + 1
                self._flush()  # while the devices work on this step
                self.save.raise_errors()
                if self.failure is None:
                    self._after_step(done, metrics, state)
                if self.failure is not None:
                    break
            done = self._finish(done, metrics)
            seconds = time.perf_counter() - began
        outcome = Outcome(state=state, steps=done, status="interrupted", because=because, seconds=seconds)
        if self.failure is not None:
            return replace(outcome, status="failed", because=self.failure.because, error=self.failure.error)
        return replace(outcome, status="succeeded") if because == ALL_STEPS_DONE else outcome

    def _next_batch(self, source: PrefetchingSource, step: int, state: TrainState) -> HostBatch:
        began = time.perf_counter()
        batch = source.batch(self._batch_number(step))
        if self.wait is not None:
            self.wait.add(time.perf_counter() - began)
        if self.generate is None:
            return batch
        with nullcontext() if self.memory is None else self.memory.during("rollout"):
            return self.generate.batch(batch, step, state, self.frozen)

    def _batch_number(self, step: int) -> int:
        return step // max(1, self.task.objective.updates_per_rollout)

    def _after_step(self, done: int, metrics: StepMetrics, state: TrainState) -> None:
        """Evaluate, log and save if they are due; wait for the step only to evaluate, to save or to sample."""
        figures = self._evaluate(done, metrics, state)
        if self.failure is None and (figures or self._is_logged(done)):
            self._hold_row(done, metrics, figures)
        saves, chains = self.save.is_saved(done), self.save.is_chained(done)
        if figures or saves or chains or self.generate is not None:
            self._flush()
            self._check(done, metrics)
        if self.failure is not None:
            return
        with self._paused():
            if self.best_step == done and self.save.checkpoints is not None:
                self.save.wait()  # it may be deleting checkpoints
                self.save.checkpoints.best_step = done
                saves = saves or done < self.task.config.limits.steps
            if saves or chains:
                self.save.submit(state, saved=saves)

    def _evaluate(self, done: int, metrics: StepMetrics, state: TrainState) -> dict[str, float | None]:
        """Evaluate held-out items if it is due, and return the figures for the step's row."""
        if self.evaluate is None or done % self.task.config.evaluation.every_steps:
            return {}
        self._check(done, metrics)
        if self.failure is not None:
            return {}
        with self._paused():
            figures, answers = self.evaluate(done, state, self.frozen)
            self.save.recorder.append(ANSWERS_OVER_STEPS, answers)
        name = self.task.config.checkpoint.keep_best
        value = None if name is None else figures.get(name)
        if value is not None:
            is_better = value > self._best if name == "held_out_score" else value < self._best
            if self.best_step is None or is_better:
                self._best, self.best_step = value, done
                message = f"best so far: {name} {value:.4f} at step {done}"
                self.save.recorder.log("info", "best_so_far", message, step=done, field=name, value=value)
        return figures

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Exclude the time of a block from the time of steps."""
        began = time.perf_counter()
        yield
        spent = time.perf_counter() - began
        self._since, self._update_began = self._since + spent, self._update_began + spent

    def _is_logged(self, done: int) -> bool:
        if self.logged_at is not None:
            return done in self.logged_at
        config = self.task.config
        return done in (self._first + 1, config.limits.steps) or done % config.recording.log_every_steps == 0

    def _hold_row(self, done: int, metrics: StepMetrics, figures: dict[str, float | None]) -> None:
        self._pending = _PendingRow(done, metrics, figures, self._computed, self._update_began)
        self._computed = 0

    def _finish(self, done: int, metrics: StepMetrics | None) -> int:
        """Write the rows up to the last step, so that the result covers all steps, and return that step."""
        if self.failure is None:
            self._flush()
        if self.failure is not None:
            done = self.failure.step  # the step after it, which may have begun, does not count
        if metrics is not None:
            if self._logged < done:
                self._hold_row(done, metrics, {})
                self._flush()
            self._check(done, metrics)
        return done

    def _check(self, done: int, metrics: StepMetrics) -> None:
        """Note a failure if the metrics of a step are not finite; waits for the step."""
        if self.failure is None:
            self.failure = find_nonfinite(
                jax.device_get(metrics), step=done, rows=lambda step: self.source.rows(self._batch_number(step))
            )

    def _flush(self) -> None:
        """Write the pending row, if there is one; waits for its step."""
        if self._pending is None:
            return
        (done, metrics, figures, tokens, update_began), self._pending = self._pending, None
        values: StepMetrics = jax.device_get(metrics)
        self._check(done, values)
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
        row["device_memory_bytes"] = device_memory_bytes(self.task.mesh.local_devices)
        named = {name: _finite_or_none(value) for name, value in values.named.items() if name in self._row_fields}
        if self.generate is not None:
            named = self.generate.row(done, named, update_seconds=at - update_began)
        self.save.recorder.metric(row | named | figures | {"time": now()})
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
    level = "error" if outcome.status == "failed" else "info"
    message = f"{quantity(outcome.steps, 'step')} in {duration(outcome.seconds)}: {outcome.because}"
    recorder.log(level, "trained", message, train_seconds=outcome.seconds, peak_memory_bytes=peak)
    return outcome


def trace_steps(step: Step, recorder: Recorder, *, steps: int | None) -> Step:
    """Return a step that traces `steps` steps after the first one into the run folder; None traces nothing."""
    if steps is None:
        return step
    trace, done = ExitStack(), 0
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # Python calls would hide what the devices do

    def traced_step(state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        nonlocal done
        if done == 1:
            jax.block_until_ready(state)  # the first step is not part of the trace
            trace.enter_context(jax.profiler.trace(str(recorder.folder / PROFILE), profiler_options=options))
        with jax.profiler.StepTraceAnnotation("step", step_num=done + 1):
            after = step(state, frozen, batch)
        done += 1
        if done == 1 + steps:
            jax.block_until_ready(after)
            trace.close()
        return after

    def finish() -> None:
        trace.close()
        traced = max(0, min(done - 1, steps))
        message = f"profile of {quantity(traced, 'step')}: {PROFILE}" if traced else "no profile: one step is too few"
        recorder.log("info", "profiled", message, steps=traced)

    recorder.before_seal.append(finish)
    return traced_step


def _finite_or_none(value: jax.Array | np.ndarray) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
