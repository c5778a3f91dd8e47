"""The training loop: steps, logging, held-out evaluation, checkpoints, and the reason to stop.

The metrics of a step are read while the next step runs, so that the device never waits for the host. The loop waits
only where a state is saved or measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from evidence.layout import PROFILE
from schemas.catalog import row_fields
from schemas.formats import quantity
from trainer.data.batches import BatchSource, HostBatch, PrefetchingSource, global_batch_size
from trainer.loop.chain import KeptStates, StateWriter, StateWriterRecorder, chain_interval
from trainer.loop.checkpoints import Checkpoints
from trainer.loop.mesh import batch_sharding
from trainer.loop.nonfinite import NonfiniteError, find_nonfinite
from trainer.loop.optimizer import build_schedule, learning_rate_at
from trainer.loop.rollouts import RolloutRecorder, Rollouts, StepCompletions
from trainer.loop.session import StopRequest
from trainer.loop.step import Batch, Params, StepMetrics, TrainState
from trainer.loop.task import Task, without_reference
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.recorder.memory import MemoryWatch, device_memory_bytes
from trainer.recorder.recorder import Recorder, now
from trainer.recorder.sensors import DataWait

ALL_STEPS_DONE = "all steps done"

Step = Callable[[TrainState, Params, Batch], tuple[TrainState, StepMetrics]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the loop ended."""

    state: TrainState
    steps: int
    """Steps done, up to the one that failed."""
    status: str
    """Status of the manifest: succeeded, failed or interrupted."""
    because: str
    seconds: float
    """Wall time of the loop, without compilation."""
    error: str | None = None
    """Kind of failure, for the manifest's `exit.error`."""


class HeldOutPoint(NamedTuple):
    """A held-out evaluation after a step."""

    figures: dict[str, float | None]
    """Fields of the step's row."""
    answers: tuple[dict[str, Any], ...]
    """Rows of `answers_over_steps.jsonl`."""


class HeldOutMeasure(Protocol):
    """Evaluates the model on held-out items during training."""

    def is_due(self, done: int) -> bool:
        """Return whether to evaluate after this many steps."""

    def measure(self, done: int, state: TrainState, frozen: Params) -> HeldOutPoint:
        """Evaluate the model after this many steps."""


class LoopRecorder(StateWriterRecorder, RolloutRecorder, Protocol):
    """Records what a loop reports; a run's `Recorder` is one."""

    def metric(self, row: dict[str, Any]) -> None:
        """Record the row of a step."""

    def answers(self, rows: Iterable[dict[str, Any]]) -> None:
        """Record held-out answers."""


class Stopwatch:
    """Measures the mean time of a step since the last row."""

    def __init__(self, done: int) -> None:
        self.step_seconds = 0.0
        self.done = done
        """Step of the last row."""
        self.computed = 0
        """Tokens since the last row, padding included."""
        self._since = self.update_began = time.perf_counter()

    def start_update(self, tokens: int) -> None:
        """Count the tokens of a step that begins, padding included."""
        self.computed += tokens
        self.update_began = time.perf_counter()

    def lap(self, done: int) -> float:
        """Return seconds per step since the last lap."""
        at = time.perf_counter()
        self.step_seconds = (at - self._since) / (done - self.done)
        self._since, self.done = at, done
        return self.step_seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of a block."""
        began = time.perf_counter()
        yield
        spent = time.perf_counter() - began
        self._since, self.update_began = self._since + spent, self.update_began + spent


class TimedSource:
    """A batch source that measures how long the loop waits for batches."""

    def __init__(self, source: BatchSource, wait: DataWait) -> None:
        self._source = source
        self._wait = wait

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


class StepTrace:
    """Traces some steps with JAX's profiler, starting at the second one."""

    def __init__(self, step: Step, folder: Path, steps: int) -> None:
        """Prepare a trace.

        Args:
            step: Function of a step.
            folder: Folder for the trace.
            steps: Number of steps to trace, at least 1.
        """
        self._step = step
        self._folder = folder
        self._steps = steps
        self._calls = 0
        self.traced = 0
        """Steps in the trace so far."""
        self._is_open = False

    def __call__(self, state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        """Run a step."""
        if self._calls == 1:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # Python calls would hide what the devices do
            jax.profiler.start_trace(self._folder, profiler_options=options)
            self._is_open = True
        self._calls += 1
        if not self._is_open:
            return self._step(state, frozen, batch)
        with jax.profiler.StepTraceAnnotation("step", step_num=self._calls):
            done = self._step(state, frozen, batch)
        self.traced += 1
        if self.traced == self._steps:
            jax.block_until_ready(done)
            self.stop()
        return done

    def stop(self) -> None:
        """Write the trace if it is open."""
        if self._is_open:
            self._is_open = False
            jax.profiler.stop_trace()


def with_trace(step: Step, recorder: Recorder, *, steps: int | None) -> Step:
    """Return the step with `steps` calls traced into the run folder, or the step itself if `steps` is None."""
    if steps is None:
        return step
    trace = StepTrace(step, recorder.folder / PROFILE, steps)

    def end() -> None:
        trace.stop()
        written = f"profile of {quantity(trace.traced, 'step')}: {PROFILE}"
        message = written if trace.traced else "no profile: one step is too few"
        recorder.log("info", "profiled", message, steps=trace.traced)

    recorder.before_seal.append(end)
    return trace


class _PendingRow(NamedTuple):
    """A row whose metrics are still being computed."""

    done: int
    metrics: StepMetrics
    computed: int
    """Tokens since the row before, padding included."""
    update_began: float


@dataclass(kw_only=True)
class Loop:
    """The training loop of a run, or of a part of it that is replayed."""

    task: Task
    step: Step
    """The compiled step; it consumes its state if the state is donated."""
    frozen: Params
    source: BatchSource
    recorder: LoopRecorder
    checkpoints: Checkpoints | None
    """Checkpoints of the run, or None to save none."""
    stop: StopRequest
    progress: Callable[[int, int, float], None]
    """Called with steps done, steps planned and the loss after each row."""
    memory: MemoryWatch | None = None
    last_step: int | None = None
    """Step to stop after, or None for the last step of the configuration."""
    logged_at: Container[int] | None = None
    """Steps to log, or None for those of the configuration."""
    wait: DataWait | None = None
    """Counts the time that the loop waits for batches."""
    kept: KeptStates | None = None
    """Saves some states for judges."""
    rollouts: Rollouts | None = None
    """Samples completions of prompts, or None to learn from the rows themselves."""
    held_out: HeldOutMeasure | None = None
    asynchronous: bool = False
    """Hash and save states while the devices continue."""
    ideal_seconds: float | None = None
    """Time of a step of the longest sequences at the devices' peak, if it is known."""
    best_step: int | None = None
    """Step with the best held-out figure so far; the first of equal ones."""
    _best: float | None = None
    _pending: _PendingRow | None = None
    _failure: NonfiniteError | None = field(default=None)
    _failed_step: int = 0

    def run(self, states: list[TrainState]) -> Outcome:
        """Train until the last step or a reason to stop.

        Args:
            states: A list with the first state only, which is removed, so that donation can free it.
        """
        with self.writer, PrefetchingSource(self.source, steps=self.steps) as source:
            return self._run(source if self.wait is None else TimedSource(source, self.wait), states)

    def _run(self, source: BatchSource, states: list[TrainState]) -> Outcome:
        began = time.perf_counter()
        state = states.pop()
        first = done = int(state.step)
        watch = Stopwatch(first)
        metrics, because, batch = None, ALL_STEPS_DONE, {}
        sampling = None if self.rollouts is None else StepCompletions(self.rollouts, self.recorder)
        for step in range(first, self.steps):
            if sampling is None or sampling.is_due(step):
                if reason := self._reason_to_stop(watch, sampling):
                    because = reason if done > first else f"{reason} before the first step"
                    break
                host_batch = source.batch(step) if sampling is None else self._sample(sampling, source, step, state)
                batch = jax.device_put(host_batch, batch_sharding(self.task.mesh))
            watch.start_update(batch["tokens"].size)
            state, metrics = self.step(state, self.frozen, batch)
            done = step + 1
            self._write_pending(watch, sampling, {})  # while the devices work on this step
            self.writer.raise_errors()
            if self._failure is None:
                self._after_step(done, first, metrics, state, watch, sampling)
            if self._failure:
                break
        if self._failure is None:
            self._write_pending(watch, sampling, {})
        else:
            done = self._failed_step  # the step after it, which may have begun, does not count
        if metrics is not None and watch.done < done:  # the result covers all steps up to the last row
            self._pending = _PendingRow(done, metrics, watch.computed, watch.update_began)
            self._write_pending(watch, sampling, {})
        seconds = time.perf_counter() - began
        if metrics is not None and (failure := self._failure or self._find_failure(done, metrics)):
            return Outcome(
                state=state,
                steps=done,
                status="failed",
                because=failure.because,
                seconds=seconds,
                error=failure.error,
            )
        status = "succeeded" if because == ALL_STEPS_DONE else "interrupted"
        return Outcome(state=state, steps=done, status=status, because=because, seconds=seconds)

    def _reason_to_stop(self, watch: Stopwatch, sampling: StepCompletions | None) -> str | None:
        # The next step must not start if it and a checkpoint would not end in time.
        save_seconds = 0.0 if self.checkpoints is None else self.checkpoints.seconds
        reason = self.stop.reason(reserve_seconds=watch.step_seconds + save_seconds)
        return reason or (None if sampling is None else sampling.stops)

    def _sample(self, sampling: StepCompletions, source: BatchSource, step: int, state: TrainState) -> HostBatch:
        with nullcontext() if self.memory is None else self.memory.during("rollout"):
            return sampling.batch(source, step, state, self.frozen)

    def _after_step(
        self,
        done: int,
        first: int,
        metrics: StepMetrics,
        state: TrainState,
        watch: Stopwatch,
        sampling: StepCompletions | None,
    ) -> None:
        """Evaluate, log and save as far as it is time; wait for the step only to evaluate, to save or to sample."""
        saved, chained = self.is_saved(done), self.is_chained(done)
        measured = self._measure(done, metrics, state, watch)
        if measured or self.is_logged(done, first):
            self._pending = _PendingRow(done, metrics, watch.computed, watch.update_began)
            watch.computed = 0
        if measured or saved or chained or sampling is not None:
            self._write_pending(watch, sampling, measured)
            self._check_finite(done, metrics)
        if self._failure:
            return
        is_best = self.best_step == done and self.checkpoints is not None
        saved = saved or (is_best and done < self.task.config.limits.steps)
        with watch.paused():
            if is_best:
                self.writer.keep_best(done)
            if saved or chained:
                self.writer.submit(state, saved=saved)

    @property
    def steps(self) -> int:
        """Step after which the loop ends."""
        return self.task.config.limits.steps if self.last_step is None else self.last_step

    def is_logged(self, done: int, first: int) -> bool:
        """Return whether a step has a row: the first, the last and every `log_every_steps`-th."""
        if self.logged_at is not None:
            return done in self.logged_at
        config = self.task.config
        return done in (first + 1, config.limits.steps) or done % config.recording.log_every_steps == 0

    def is_saved(self, done: int) -> bool:
        """Return whether a checkpoint follows a step; the last one is saved after the loop."""
        every = self.task.config.checkpoint.save_every_steps
        return every > 0 and done % every == 0 and done < self.task.config.limits.steps

    def is_chained(self, done: int) -> bool:
        """Return whether an entry of the chain follows a step; checkpoints and the end have one anyway."""
        return done % chain_interval(self.task.config) == 0 and done < self.task.config.limits.steps

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all earlier steps, without padding unless completions are sampled."""
        return self.source.tokens_before(step) if self.rollouts is None else step * self.task.tokens_per_step

    def _find_failure(self, done: int, metrics: StepMetrics) -> NonfiniteError | None:
        values: StepMetrics = jax.device_get(metrics)  # waits for the step

        def rows(step: int) -> list[int]:
            return self.source.rows(step // max(1, self.task.objective.updates_per_rollout))

        return find_nonfinite(float(values.loss), float(values.grad_norm), values.named, step=done, rows=rows)

    def _check_finite(self, done: int, metrics: StepMetrics) -> None:
        if self._failure is None and (failure := self._find_failure(done, metrics)):
            self._failure, self._failed_step = failure, done

    def _measure(self, done: int, metrics: StepMetrics, state: TrainState, watch: Stopwatch) -> dict[str, float | None]:
        """Evaluate held-out items if it is time, and return the figures for the step's row."""
        if self.held_out is None or not self.held_out.is_due(done):
            return {}
        if self._find_failure(done, metrics):
            return {}
        with watch.paused():
            point = self.held_out.measure(done, state, self.frozen)
            self.recorder.answers(point.answers)
        field_name = self.task.config.checkpoint.keep_best
        value = None if field_name is None else point.figures.get(field_name)
        if value is not None:
            rises = field_name == "held_out_score"
            if self._best is None or (value > self._best if rises else value < self._best):
                self._best, self.best_step = value, done
                message = f"best so far: {field_name} {value:.4f} at step {done}"
                self.recorder.log("info", "best_so_far", message, step=done, field=field_name, value=value)
        return point.figures

    def _write_pending(
        self, watch: Stopwatch, sampling: StepCompletions | None, measured: dict[str, float | None]
    ) -> None:
        """Write the row of the last logged step, once its metrics are there."""
        if self._pending is None:
            return
        (done, metrics, tokens, update_began), self._pending = self._pending, None
        values: StepMetrics = jax.device_get(metrics)  # waits for the step
        self._check_finite(done, values)
        steps, tokens_seen = done - watch.done, self.tokens_before(done)
        per_step, computed = (tokens_seen - self.tokens_before(watch.done)) / steps, tokens / steps
        update_seconds, seconds = time.perf_counter() - update_began, watch.lap(done)
        named = {name: _finite_or_none(value) for name, value in values.named.items() if name in self._row_fields}
        row = {
            "step": done,
            "tokens_seen": tokens_seen,
            "loss": _finite_or_none(values.loss),
            "learning_rate": learning_rate_at(self._schedule, done - 1),
            "grad_norm": _finite_or_none(values.grad_norm),
            "step_seconds": seconds,
            "tokens_per_second": per_step / seconds,
        }
        if sampling is None and self.ideal_seconds is not None:
            row["mfu"] = self.ideal_seconds * computed / self.task.tokens_per_step / seconds
        if len(self.task.lengths) > 1:
            row["tokens_per_step"] = computed
        if sampling is None:
            row["padding_fraction"] = 1 - per_step / computed
        row["device_memory_bytes"] = device_memory_bytes(list(self.task.mesh.devices.flat))
        row |= named if sampling is None else sampling.row(done, named, update_seconds=update_seconds)
        self.recorder.metric(row | measured | {"time": now()})
        self.progress(done, self.task.config.limits.steps, float(values.loss))

    @cached_property
    def _schedule(self) -> Any:
        return build_schedule(self.task.config.optimizer, steps=self.task.config.limits.steps)

    @cached_property
    def _row_fields(self) -> frozenset[str]:
        return frozenset(each.name for each in row_fields())

    @cached_property
    def writer(self) -> StateWriter:
        """Writes states to chain, checkpoints and files for judges."""
        batch_size = global_batch_size(self.task.config, devices=self.task.mesh.size)
        return StateWriter(
            recorder=self.recorder,
            checkpoints=self.checkpoints,
            kept=self.kept,
            memory=self.memory,
            data_position=lambda step: step * batch_size,
            asynchronous=self.asynchronous,
        )


def train(loop: Loop, states: list[TrainState], recorder: Recorder, checkpoints: Checkpoints) -> Outcome:
    """Run the loop, save its last state, and record the result."""
    loop.writer.write(states[0], saved=False, params=recorder.manifest["model"]["weights_sha256"])
    outcome = loop.run(states)
    if outcome.status != "failed":
        params = params_sha256(combine(outcome.state.trained, without_reference(loop.frozen)))
        loop.writer.write(outcome.state, saved=True, params=params)
    elif int(outcome.state.step) == outcome.steps:
        # A state that is not finite is useless for resuming; the checkpoint before it is not.
        loop.writer.write(outcome.state, saved=False)
    checkpoints.close()
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


def _finite_or_none(value: jax.Array | np.ndarray) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
