"""The loop: from the first step to the last, or to the reason to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import jax
from jaxtyping import Array

from schemas.catalog import row_fields
from trainer.data.order import BatchSource, HostBatch, PrefetchingSource, global_batch_size
from trainer.loop.drawing import DrawingRecorder, StepCompletions
from trainer.loop.entries import Entries, EntryRecorder
from trainer.loop.held_out import AnswerRecorder, HeldOutMeasure, HeldOutPoints
from trainer.loop.kept_states import KeptStates, chained_every
from trainer.loop.mesh import batch_sharding
from trainer.loop.optimizer import build_schedule, learning_rate_at
from trainer.loop.rollouts import Rollouts
from trainer.loop.saving import Checkpoints
from trainer.loop.spoiled import rows_learned, spoiled_by
from trainer.loop.step import Batch, Params, StepMetrics, TrainState
from trainer.loop.stop import StopRequest
from trainer.loop.stopwatch import Stopwatch, TimedSource
from trainer.loop.task import Task, without_reference
from trainer.methods.method import combine
from trainer.model.params import params_sha256
from trainer.recorder.memory import MemoryWatch, device_memory_bytes
from trainer.recorder.recorder import Recorder, now
from trainer.recorder.sensors import DataWait

ALL_STEPS_DONE = "all steps done"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the loop ended."""

    state: TrainState
    status: str
    """succeeded, failed or interrupted: a status of the manifest."""
    because: str
    seconds: float
    """Wall time of the loop, compilation excluded."""
    error: str | None = None
    """Kind of failure, for the manifest's `exit.error`."""


class LoopRecorder(EntryRecorder, DrawingRecorder, AnswerRecorder, Protocol):
    """What a loop reports while it works; a run's recorder is one."""

    def metric(self, row: dict[str, Any]) -> None:
        """Take the row of a step."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What the loop works with; `run` does the work."""

    task: Task
    step: Callable[[TrainState, Params, Batch], tuple[TrainState, StepMetrics]]
    """The compiled step; it consumes the state it is given where the state is donated."""
    frozen: Params
    """The parameters that do not learn."""
    source: BatchSource
    recorder: LoopRecorder
    checkpoints: Checkpoints | None
    """None: nothing is saved."""
    stop: StopRequest
    progress: Callable[[int, int, float], None]
    """Called with steps done, steps planned and the loss after each row."""
    memory: MemoryWatch | None = None
    """Observes the memory that is taken. None: no one does."""
    last_step: int | None = None
    """Where to stop. None: after the last step of the configuration."""
    logged_at: Container[int] | None = None
    """Steps that have a row. None: those of the configuration."""
    wait: DataWait | None = None
    """Counts the time that the loop waits for batches. None: no one does."""
    kept: KeptStates | None = None
    """Keeps some states as evidence. None: none are kept."""
    rollouts: Rollouts | None = None
    """Draws completions of prompts. None: what the source gives is learned as it is."""
    held_out: HeldOutMeasure | None = None
    """Measures the model at some steps. None: no one does before the end."""
    beside: bool = False
    """Whether states are hashed and saved while the devices go on."""
    ideal_seconds: float | None = None
    """How long a step of the longest sequences takes at the devices' peak. None: not known."""

    def run(self, states: list[TrainState]) -> Outcome:
        """Return the state after the last step, or after the one at which there was a reason to stop.

        Args:
            states: the first state alone, which is taken out: anyone who held it would keep its memory.
        """
        with self.entries, PrefetchingSource(self.source, steps=self.steps) as source:
            return self.run_on(source if self.wait is None else TimedSource(source, self.wait), states)

    def run_on(self, source: BatchSource, states: list[TrainState]) -> Outcome:
        """Return what `run` returns, with batches from a source that makes them ahead."""
        began = time.perf_counter()
        state = states.pop()
        first = done = int(state.step)
        watch = Stopwatch(first)
        metrics, because, batch = None, ALL_STEPS_DONE, {}
        drawing = None if self.rollouts is None else StepCompletions(self.rollouts, self.recorder)
        points = HeldOutPoints(self.held_out, self.recorder, self.task.config.checkpoint.keep_best)
        for step in range(first, self.steps):
            if drawing is None or drawing.is_due(step):
                # The next step must not start if it and a checkpoint would not end in time.
                if reason := self.reason_to_stop(watch, drawing):
                    because = reason if done > first else f"{reason} before the first step"
                    break
                given = source.batch(step) if drawing is None else self.drawn(drawing, source, step, state)
                batch = jax.device_put(given, batch_sharding(self.task.mesh))
            watch.begins_update(batch["tokens"].size)
            state, metrics = self.step(state, self.frozen, batch)
            self.entries.look()
            done = step + 1
            measured = points.after(done, metrics, state, self.frozen, watch)
            logged = bool(measured) or self.is_logged(done, first)
            saved, chained = self.is_saved(done), self.is_chained(done)
            if logged:
                self.log(done, metrics, watch, drawing, measured)
            # At other steps no one waits for the devices.
            if (logged or saved or chained) and spoiled_by(metrics, step=done):
                break
            is_best = points.best_step == done and self.checkpoints is not None
            saved = saved or (is_best and done < self.task.config.limits.steps)
            with watch.left_out():
                if is_best:
                    self.entries.prefers(done)
                if saved or chained:
                    self.entries.take(state, saved=saved)
        if metrics is not None and watch.done < done:
            self.log(done, metrics, watch, drawing, {})  # stopped between rows: the result counts to the last row
        seconds = time.perf_counter() - began
        # The last state is saved after the loop, so its numbers too must hold where the loop ends between rows.
        rows = partial(rows_learned, self.source, self.task.objective)
        if metrics is not None and (spoiled := spoiled_by(metrics, step=done, rows=rows)):
            return Outcome(state=state, status="failed", because=spoiled.because, seconds=seconds, error=spoiled.error)
        status = "succeeded" if because == ALL_STEPS_DONE else "interrupted"
        return Outcome(state=state, status=status, because=because, seconds=seconds)

    def drawn(self, drawing: StepCompletions, source: BatchSource, step: int, state: TrainState) -> HostBatch:
        """Return what the update after `step` steps learns from."""
        with nullcontext() if self.memory is None else self.memory.during("rollout"):
            return drawing.batch(source, step, state, self.frozen)

    def reason_to_stop(self, watch: Stopwatch, drawing: StepCompletions | None) -> str | None:
        """Return why the next step does not begin, None where it does."""
        reserve_seconds = watch.step_seconds + self.save_seconds
        return self.stop.reason(reserve_seconds=reserve_seconds) or (drawing.stops if drawing else None)

    @property
    def steps(self) -> int:
        """The step after which it is done."""
        return self.task.config.limits.steps if self.last_step is None else self.last_step

    @property
    def save_seconds(self) -> float:
        """How long the last checkpoint took."""
        return 0.0 if self.checkpoints is None else self.checkpoints.seconds

    def is_logged(self, done: int, first: int) -> bool:
        """Return whether a step has a row in metrics.jsonl: the first, the last and every `log_every_steps`-th."""
        if self.logged_at is not None:
            return done in self.logged_at
        return (
            done in (first + 1, self.task.config.limits.steps) or done % self.task.config.recording.log_every_steps == 0
        )

    def is_saved(self, done: int) -> bool:
        """Return whether a checkpoint follows a step; the last one is saved by the run itself."""
        every = self.task.config.checkpoint.save_every_steps
        return every > 0 and done % every == 0 and done < self.task.config.limits.steps

    def is_chained(self, done: int) -> bool:
        """Return whether an entry of the chain follows a step; checkpoints and the end have theirs besides."""
        return done % chained_every(self.task.config) == 0 and done < self.task.config.limits.steps

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one: padding left out, or with it where completions are drawn."""
        return self.source.tokens_before(step) if self.rollouts is None else step * self.task.tokens_per_step

    def log(
        self,
        done: int,
        metrics: StepMetrics,
        watch: Stopwatch,
        drawing: StepCompletions | None,
        measured: dict[str, float | None],
    ) -> None:
        """Write the row of a step."""
        loss = float(metrics.loss)  # waits until the devices have finished the step
        steps, tokens_seen = done - watch.done, self.tokens_before(done)
        per_step = (tokens_seen - self.tokens_before(watch.done)) / steps
        computed = watch.computed / steps
        named, update_seconds = self.named(metrics), watch.update_seconds
        seconds = watch.lap(done)
        schedule = build_schedule(self.task.config.optimizer, steps=self.task.config.limits.steps)
        self.recorder.metric(
            {
                "step": done,
                "tokens_seen": tokens_seen,
                "loss": finite_or_none(metrics.loss),
                "learning_rate": learning_rate_at(schedule, done - 1),
                "grad_norm": finite_or_none(metrics.grad_norm),
                "step_seconds": seconds,
                "tokens_per_second": per_step / seconds,
                **({} if self.ideal_seconds is None or drawing is not None else self.mfu(computed, seconds)),
                **({"tokens_per_step": computed} if len(self.task.lengths) > 1 else {}),
                **({"padding_fraction": 1 - per_step / computed} if drawing is None else {}),
                "device_memory_bytes": device_memory_bytes(list(self.task.mesh.devices.flat)),
                **(named if drawing is None else drawing.row(done, named, update_seconds=update_seconds)),
                **measured,
                "time": now(),
            }
        )
        self.progress(done, self.task.config.limits.steps, loss)

    def mfu(self, tokens: float, seconds: float) -> dict[str, float]:
        """Return the share of their peak that the devices reached, of steps with so many tokens, padding included."""
        return {"mfu": (self.ideal_seconds or 0.0) * tokens / self.task.tokens_per_step / seconds}

    def named(self, metrics: StepMetrics) -> dict[str, float | None]:
        """Return the objective's figures that are fields of a row."""
        fields = {field.name for field in row_fields()}
        return {name: finite_or_none(value) for name, value in metrics.named.items() if name in fields}

    @cached_property
    def entries(self) -> Entries:
        """What writes the states down."""
        return Entries(
            recorder=self.recorder,
            checkpoints=self.checkpoints,
            kept=self.kept,
            memory=self.memory,
            position=self.data_position,
            beside=self.beside,
        )

    def data_position(self, step: int) -> int:
        """Return the sequences that the steps up to this one take from the stream of passes over the data."""
        return step * global_batch_size(self.task.config, devices=self.task.mesh.size)

    def params_sha256(self, state: TrainState) -> str:
        """Return the hash of all parameters of the model."""
        return params_sha256(combine(state.trained, without_reference(self.frozen)))


def train(loop: Loop, states: list[TrainState], recorder: Recorder, checkpoints: Checkpoints) -> Outcome:
    """Run the loop on the first state, save its last one, and record the result."""
    loop.entries.write(states[0], saved=False, params=recorder.manifest["model"]["weights_sha256"])
    outcome = loop.run(states)
    # A state whose numbers are not finite is of no use to continue from; the checkpoint before it is.
    if outcome.status != "failed":
        loop.entries.write(outcome.state, saved=True, params=loop.params_sha256(outcome.state))
    else:
        loop.entries.write(outcome.state, saved=False)
    checkpoints.close()
    recorder.update("training", steps_done=int(outcome.state.step))
    peak = None if loop.memory is None else loop.memory.peak_bytes()
    recorder.record_result(train_seconds=outcome.seconds, peak_memory_bytes=peak, stopped_because=outcome.because)
    recorder.log(
        "error" if outcome.status == "failed" else "info",
        "trained",
        f"{int(outcome.state.step)} steps in {outcome.seconds:.1f} s: {outcome.because}",
        train_seconds=outcome.seconds,
        peak_memory_bytes=peak,
    )
    return outcome


def finite_or_none(value: Array) -> float | None:
    """Return a measured number, None for one that is not finite, which JSON cannot hold."""
    number = float(value)
    return number if math.isfinite(number) else None
