"""How a run begins: with parameters drawn or read and a first state made of them, or with a checkpoint's state.

A state comes alone in a list, from which the loop takes it: where it is not donated, whoever holds it besides keeps its
memory.
"""

from __future__ import annotations

from pathlib import Path

from trainer.loop.checkpoint.restoring import restore
from trainer.loop.program import draw_program, start_program
from trainer.loop.state import placed, state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import Task
from trainer.methods.method import split
from trainer.model.files.loading import load_params
from trainer.model.params import Params


def initial_params(task: Task) -> Params:
    """Return all parameters before the first step, on their devices: read from the model's files, or drawn.

    Raises:
        ProblemError: exit code 2; the model's files cannot be used.
    """
    if task.model.reads_weights:
        return load_params(task.model.source, placed(task.model.shapes, task))
    params: Params = draw_program(task).compile().call()
    return params


def initial_state(task: Task) -> tuple[list[TrainState], Params]:
    """Return the state before the first step, alone in a list, and the frozen parameters beside it.

    Raises:
        ProblemError: exit code 2; the model's files cannot be used.
    """
    trained, frozen = split(task.model.method, initial_params(task))
    state: TrainState = start_program(task).compile().call(trained)
    return [state], frozen


def restored_state(folder: Path, task: Task) -> tuple[list[TrainState], Params]:
    """Return the newest checkpoint of a run, alone in a list, and the frozen parameters, which it does not hold.

    Raises:
        ProblemError: exit code 2, they cannot be used; 4, the device has no room for them.
    """
    state = restore(folder, state_shapes(task))
    if not task.model.frozen:
        return [state], {}
    if task.model.reads_weights:
        return [state], split(task.model.method, initial_params(task))[1]
    frozen: Params = draw_program(task, frozen=True).compile().call()
    return [state], frozen
