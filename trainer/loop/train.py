"""The loop: from the first step to the last, or to the reason to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import optax

from trainer.config.tree import Config
from trainer.data.encode import EncodedData
from trainer.data.order import rows_of_step
from trainer.loop.checkpoint import Checkpoints
from trainer.loop.mesh import batch_sharding
from trainer.loop.optimizer import learning_rate_at
from trainer.loop.program import Program, batch_size_of
from trainer.loop.step import Batch, StepMetrics, TrainState
from trainer.loop.stop import StopRequest
from trainer.planning.devices import Devices
from trainer.recorder.memory import device_memory_bytes
from trainer.recorder.recorder import Recorder, now

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


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What the loop works with; `run` does the work."""

    config: Config
    program: Program
    data: EncodedData
    devices: Devices
    schedule: optax.Schedule
    recorder: Recorder
    checkpoints: Checkpoints
    stop: StopRequest
    progress: Callable[[int, int, float], None]
    """Called with steps done, steps planned and the loss after each row."""

    def run(self, state: TrainState) -> Outcome:
        """Return the state after the last step, or after the one at which there was a reason to stop."""
        began = time.perf_counter()
        first = done = int(state.step)
        watch = Stopwatch(first)
        metrics, because = None, ALL_STEPS_DONE
        for step, batch in self.batches(first):
            # The next step must not start if it and a checkpoint would not end in time.
            if reason := self.stop.reason(reserve_seconds=watch.step_seconds + self.checkpoints.seconds):
                because = reason if done > first else f"{reason} before the first step"
                break
            state, metrics = self.program.step(state, batch)
            done = step + 1
            logged, saved = self.is_logged(done, first), self.is_saved(done)
            if logged:
                self.log(done, metrics, watch)
            # At other steps nobody waits for the devices.
            if (logged or saved) and not_finite(metrics):
                break
            if saved:
                self.save(state)
                watch.leave_out(self.checkpoints.seconds)
        if metrics is not None and watch.done < done:
            self.log(done, metrics, watch)  # stopped between rows: the result counts to the last row
        seconds = time.perf_counter() - began
        # The last state is saved after the loop, so its numbers too must hold where the loop ends between rows.
        if metrics is not None and (broken := not_finite(metrics)):
            because, error = f"the {broken} at step {done} is not finite", f"non_finite_{broken}"
            return Outcome(state=state, status="failed", because=because, seconds=seconds, error=error)
        status = "succeeded" if because == ALL_STEPS_DONE else "interrupted"
        return Outcome(state=state, status=status, because=because, seconds=seconds)

    def batches(self, first: int) -> Iterator[tuple[int, Batch]]:
        """Yield each remaining step, counted from 0, with its batch on the devices."""
        config = self.config
        sharding = batch_sharding(self.program.mesh)
        size = batch_size_of(config, devices=len(self.devices.list))
        shape = (config.batch.accumulation_steps, -1, config.data.max_length)
        for step in range(first, config.limits.steps):
            rows = rows_of_step(
                step, rows=len(self.data.tokens), batch_size=size, seed=config.seed, shuffle=config.data.shuffle
            )
            yield (
                step,
                Batch(
                    tokens=jax.device_put(self.data.tokens[rows].reshape(shape), sharding),
                    loss_mask=jax.device_put(self.data.loss_mask[rows].reshape(shape), sharding),
                ),
            )

    def is_logged(self, done: int, first: int) -> bool:
        """Return whether a step has a row in metrics.jsonl: the first, the last and every `log_every_steps`-th."""
        return done in (first + 1, self.config.limits.steps) or done % self.config.recording.log_every_steps == 0

    def is_saved(self, done: int) -> bool:
        """Return whether a checkpoint follows a step; the last one is saved by the run itself."""
        every = self.config.checkpoint.save_every_steps
        return every > 0 and done % every == 0 and done < self.config.limits.steps

    def log(self, done: int, metrics: StepMetrics, watch: Stopwatch) -> None:
        """Write the row of a step."""
        loss = float(metrics.loss)  # waits until the devices have finished the step
        grad_norm = float(metrics.grad_norm)
        seconds = watch.lap(done)
        tokens_per_step = self.tokens_per_step
        self.recorder.metric(
            {
                "step": done,
                "tokens_seen": done * tokens_per_step,
                "loss": loss if math.isfinite(loss) else None,
                "learning_rate": learning_rate_at(self.schedule, done - 1),
                "grad_norm": grad_norm if math.isfinite(grad_norm) else None,
                "step_seconds": seconds,
                "tokens_per_second": tokens_per_step / seconds,
                "device_memory_bytes": device_memory_bytes(self.devices),
                "time": now(),
            }
        )
        self.progress(done, self.config.limits.steps, loss)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step over all devices, padding included."""
        return batch_size_of(self.config, devices=len(self.devices.list)) * self.config.data.max_length

    def save(self, state: TrainState) -> None:
        """Write a checkpoint, after everything recorded so far is on disk."""
        self.recorder.sync()
        step = self.checkpoints.save(state)
        self.recorder.log(
            "info", "checkpoint_saved", f"checkpoint at step {step}", step=step, seconds=self.checkpoints.seconds
        )


def not_finite(metrics: StepMetrics) -> str | None:
    """Return which of a step's numbers is not finite, after which its state is of no use; waits for the step to end."""
    if not math.isfinite(metrics.loss):
        return "loss"
    # The loss is that of the params before the update; a gradient that is not finite has spoiled those after it.
    return None if math.isfinite(metrics.grad_norm) else "gradient"


class Stopwatch:
    """Mean time of a step since the last row."""

    def __init__(self, done: int) -> None:
        """Start at once, with `done` steps done."""
        self.step_seconds = 0.0
        self.done = done
        """The step of the last row."""
        self._since = time.perf_counter()

    def lap(self, done: int) -> float:
        """Return seconds per step since the last lap."""
        at = time.perf_counter()
        self.step_seconds = (at - self._since) / (done - self.done)
        self._since, self.done = at, done
        return self.step_seconds

    def leave_out(self, seconds: float) -> None:
        """Leave out time that was not spent on steps."""
        self._since += seconds
