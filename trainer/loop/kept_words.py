"""What a run keeps for judges and what that makes possible, in words: shown by its plan and at its end."""

from __future__ import annotations

from schemas.problems.formats import size
from schemas.problems.words import quantity
from trainer.loop.disk import bytes_of
from trainer.loop.kept_states import steps_to_keep
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.loop.trained_params import are_kept, params_bytes


def kept_said(task: Task, *, first: int = 0) -> str:
    """Return what a run keeps of its parameters and of its train states, and what a judge can do with it.

    Args:
        task: what is trained.
        first: the step from which it begins.
    """
    return f"{_of_parameters(task)}; {_of_states(task, first)}"


def _of_parameters(task: Task) -> str:
    held = size(params_bytes(task.model.trained))
    if are_kept(task):
        return f"the trained parameters are kept ({held}), so that others can put questions to the model"
    return (
        f"the trained parameters are not kept ({held}; recording.params_mib keeps {task.config.recording.params_mib} "
        "MiB), so that nobody can put questions to the model unless it is packed --with-weights"
    )


def _of_states(task: Task, first: int) -> str:
    each = bytes_of(state_shapes(task))
    count = len(steps_to_keep(task.config, each, first=first))
    if count:
        return f"{quantity(count, 'train state')} of {size(each)} too, so that others can repeat its end"
    most = task.config.recording.states_mib
    return (
        f"no train state is (each has {size(each)}; recording.states_mib keeps {most} MiB), so that a judge asks for "
        "those that he names"
    )
