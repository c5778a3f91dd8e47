"""The train steps of a run, one compiled for each length of its sequences, all of them before the first is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.loop.program import Compiled, train_program
from trainer.loop.step import Batch, Params, StepMetrics, TrainState
from trainer.loop.task import Task


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Compiled steps that differ in nothing but the length of the sequences that they take."""

    by_length: Mapping[int, Compiled]
    """By tokens of a sequence, padding included, ascending."""

    def __call__(self, state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        """Run the step that is compiled for the batch's length."""
        done: tuple[TrainState, StepMetrics] = self.by_length[batch["tokens"].shape[-1]].call(state, frozen, batch)
        return done

    @property
    def longest(self) -> Compiled:
        """The step of the longest sequences, which needs the most memory."""
        return self.by_length[max(self.by_length)]

    @property
    def seconds(self) -> float:
        """How long tracing and compiling all of them took."""
        return sum(step.seconds for step in self.by_length.values())


def compiled_steps(task: Task, lengths: Sequence[int]) -> Steps:
    """Return the steps of a run, compiled.

    Args:
        task: what is trained.
        lengths: tokens of the sequences that its data has, each one of `task.lengths`.
    """
    return Steps(by_length={length: train_program(task, length).compile() for length in sorted(lengths)})
