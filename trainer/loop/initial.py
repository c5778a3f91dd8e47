"""How a run begins: with parameters drawn or read and a first state made of them, or with a checkpoint's state.

A state comes alone in a list, from which the loop takes it: where it is not donated, anyone who holds it besides keeps
its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.loop.program import Compiled, draw_program
from trainer.loop.restoring import frozen_sha256_of, restore
from trainer.loop.run_programs import Beginning, compiled_beginning
from trainer.loop.state import state_shapes, with_shardings
from trainer.loop.step import TrainState
from trainer.loop.task import REFERENCE, Task, reference_of
from trainer.methods.method import partition
from trainer.model.files.loading import load_params
from trainer.model.lora import is_lora
from trainer.model.params import Params, params_sha256
from trainer.model.runs import members
from trainer.model.stacking import stack_params
from trainer.recorder.failure import explain_full_device

ANOTHER_BASE = Rule(
    "TP055",
    "Checkpoint of another base",
    "The checkpoint holds what was trained beside the model; beside another one it means something else.",
    "Name the model as it was, or begin anew.",
)


def initial_params(task: Task, draw: Compiled | None = None) -> Params:
    """Return all parameters before the first step, on their devices: read from the model's files, or drawn.

    Adapters are drawn in either case.

    Args:
        task: what is trained.
        draw: draws them (`Beginning.draw`). None: it is compiled here.

    Raises:
        ProblemError: exit code 2; the model's files cannot be used.
    """
    return some_params(task, lambda name: True, draw)


def initial_state(task: Task, beginning: Beginning | None = None) -> tuple[list[TrainState], Params]:
    """Return the state before the first step, alone in a list, and the frozen parameters beside it.

    Args:
        task: what is trained.
        beginning: the programs that make it. None: they are compiled here.

    Raises:
        ProblemError: exit code 2; the model's files cannot be used.
    """
    beginning = beginning or compiled_beginning(task)
    trained, frozen = partition(task.model.method, initial_params(task, beginning.draw))
    if task.reference:
        frozen |= reference_of(trained)  # before the state takes them over
    state: TrainState = beginning.start.call(trained)
    return [state], frozen


def restored_state(folder: Path, task: Task, *, to_train: bool = False) -> tuple[list[TrainState], Params]:
    """Return the newest checkpoint of a run, alone in a list, and the frozen parameters, which it does not hold.

    Args:
        folder: of the run.
        task: what it trains.
        to_train: with the reference's parameters, which only a train step reads.

    Raises:
        ProblemError: exit code 2, they cannot be used; 3, they are not those of the checkpoint; 4, the device has no
            room.
    """
    state = restore(folder, state_shapes(task))
    if not (task.frozen if to_train else task.model.frozen):
        return [state], {}
    with explain_full_device(str(folder)):
        if task.reference:
            frozen = {f"{REFERENCE}{name}": value for name, value in initial_params(task).items()}
        else:
            frozen = some_params(task, lambda name: not task.model.method.is_trained(name))
    saved, found = frozen_sha256_of(folder), params_sha256(frozen)
    if saved is not None and saved != found:
        name = task.model.source.name
        what = (
            f"The frozen parameters of {name} are not those beside which the checkpoint was trained: they have the "
            f"SHA-256 {found}, and those had {saved}."
        )
        raise ProblemError([problem_of(ANOTHER_BASE, file=str(folder), what=what)], exit_code=3)
    return [state], frozen


def some_params(task: Task, wanted: Callable[[str], bool], draw: Compiled | None = None) -> Params:
    """Return the parameters before the first step whose names are wanted, in the order of their names.

    Args:
        task: what is trained.
        wanted: whether the parameter of a name is.
        draw: draws those of them that no files hold. None: it is compiled here.
    """
    model = task.model
    if not model.reads_weights:
        drawn: Params = (draw or draw_program(task, wanted).compile()).call()
        return drawn
    read = load_params(model.source, with_shardings(model.base, task), on_devices=not task.is_scanned)
    read = {name: value for name, value in read.items() if wanted(name)}
    found = stack_params(
        read, {name: shape for name, shape in with_shardings(task.shapes, task).items() if members(name)[0] in read}
    )
    if model.adapters:
        found |= (draw or draw_program(task, lambda name: is_lora(name) and wanted(name)).compile()).call()
    return dict(sorted(found.items()))
