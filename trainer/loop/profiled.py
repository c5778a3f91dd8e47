"""A trace of a few steps by JAX's profiler, beside the evidence: for the eyes of who looks for time, and no claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax

from evidence.layout import PROFILE
from schemas.formats import quantity
from trainer.loop.step import Batch, Params, StepMetrics, TrainState
from trainer.recorder.recorder import Recorder

Step = Callable[[TrainState, Params, Batch], tuple[TrainState, StepMetrics]]


class StepTrace:
    """Steps of which some are traced: those after the first, which has once what all others have no more."""

    def __init__(self, step: Step, folder: Path, steps: int) -> None:
        """Trace nothing yet.

        Args:
            step: takes a step.
            folder: where the trace goes.
            steps: how many are traced, 1 or more.
        """
        self._step = step
        self._folder = folder
        self._steps = steps
        self._calls = 0
        self.traced = 0
        """Steps in the trace so far."""
        self._is_open = False

    def __call__(self, state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        """Take a step."""
        if self._calls == 1:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # every call of Python's would hide what the devices do
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
        """Write the trace, if one is open."""
        if self._is_open:
            self._is_open = False
            jax.profiler.stop_trace()


def with_trace(step: Step, recorder: Recorder, *, steps: int | None) -> Step:
    """Return the step with some of its calls traced, or itself where none are to be.

    Args:
        step: takes a step.
        recorder: of the run; its end closes a trace that has fewer steps.
        steps: how many are traced. None: none.
    """
    if steps is None:
        return step
    trace = StepTrace(step, recorder.folder / PROFILE, steps)

    def end() -> None:
        trace.stop()
        said = f"profile of {quantity(trace.traced, 'step')}: {PROFILE}"
        recorder.log(
            "info", "profiled", said if trace.traced else "no profile: one step is too few", steps=trace.traced
        )

    recorder.before_seal.append(end)
    return trace
