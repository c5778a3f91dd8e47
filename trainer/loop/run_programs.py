"""The programs that a run calls, compiled from shapes: before a weight is read, and each of them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer.data.prompts import Asked
from trainer.loop.program import Compiled, decode_program, draw_program, start_program
from trainer.loop.steps import Steps, compiled_steps
from trainer.loop.task import Task
from trainer.model.lora import is_lora
from trainer.recorder.memory import MemoryWatch, Part


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What makes the first state; a run that is continued has it from its checkpoint."""

    draw: Compiled | None
    """Draws parameters: all where no files hold them, else those of adapters. None: all are read."""
    start: Compiled
    """Makes the state of them."""


@dataclass(frozen=True, kw_only=True)
class RunPrograms:
    """The programs of a run, in the order in which they run."""

    beginning: Beginning | None
    """None: the state comes from a checkpoint."""
    steps: Steps
    decode: Compiled | None
    """Answers one batch of prompts. None: nothing is evaluated. `generate` finds it by its shapes."""

    @property
    def by_name(self) -> Mapping[str, tuple[Compiled, ...]]:
        """The programs under the names that a plan gives them; those of one name never run together."""
        begins = self.beginning
        found = {
            "start": () if begins is None else tuple(each for each in (begins.draw, begins.start) if each is not None),
            "train": tuple(self.steps.by_length.values()),
            "decode": () if self.decode is None else (self.decode,),
        }
        return {name: programs for name, programs in found.items() if programs}

    @property
    def compiled_before(self) -> list[str]:
        """The names of those that were read from the cache of compiled programs."""
        return [name for name, programs in self.by_name.items() if all(each.is_kept for each in programs)]

    def observed_by(self, memory: MemoryWatch) -> RunPrograms:
        """Return the programs with each counted as a part of the run from its first call on."""
        begins = self.beginning
        if begins is not None:
            draw = None if begins.draw is None else _observe("start", begins.draw, memory)
            begins = Beginning(draw=draw, start=_observe("start", begins.start, memory))
        steps = {length: _observe("train", step, memory) for length, step in self.steps.by_length.items()}
        return replace(self, beginning=begins, steps=Steps(by_length=steps))


def _observe(part: Part, program: Compiled, memory: MemoryWatch) -> Compiled:
    """Return a program at whose first call a part of the run begins."""
    seen: list[str] = []

    def call(*arguments: Any) -> Any:
        if not seen:
            memory.begins(part)
            seen.append(part)
        return program.call(*arguments)

    return replace(program, call=call)


def compiled_beginning(task: Task) -> Beginning:
    """Return what makes the first state of a run, compiled."""
    draw = None
    if not task.model.reads_weights:
        draw = draw_program(task, lambda name: True).compile()
    elif task.model.adapters:
        draw = draw_program(task, is_lora).compile()
    return Beginning(draw=draw, start=start_program(task).compile())


def compiled_run(task: Task, lengths: Sequence[int], *, asked: Asked | None, resumed: bool) -> RunPrograms:
    """Return all programs of a run, compiled for its devices.

    Args:
        task: what is trained; only shapes of its parameters are looked at.
        lengths: tokens of the sequences that its data has, each one of `task.lengths`.
        asked: the prompts of the evaluation. None: nothing is evaluated.
        resumed: whether the state comes from a checkpoint.
    """
    return RunPrograms(
        beginning=None if resumed else compiled_beginning(task),
        steps=compiled_steps(task, lengths),
        decode=None if asked is None else decode_program(task, asked).compile(),
    )
