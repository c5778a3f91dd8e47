"""The state of a run on its devices: its shapes, and the first one, of parameters that are drawn or read.

Parameters never exist twice: random ones are drawn in place, read ones are put there tensor by tensor. A state comes
alone in a list, from which the loop takes it: where it is not donated, anyone who holds it besides keeps its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import optax

from trainer.config.tree import OptimizerConfig
from trainer.loop.compilation import Compiled, Program, jitted
from trainer.loop.mesh import state_shardings
from trainer.loop.nonfinite import initial_loss_scale, initial_skipped_steps, uses_loss_scale
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import TrainState, first_state
from trainer.loop.task import Task, reference_of
from trainer.model.decoder import build, flatten
from trainer.model.load import load_params
from trainer.model.lora import is_lora
from trainer.model.model import partition, resolve_remat
from trainer.model.stacks import Params, stack_params, stacked_names


def with_shardings(shapes: Any, task: Task) -> Any:
    """Return shapes with the shardings under which a run's arrays lie."""
    shardings = state_shardings(shapes, task.mesh, shard_params=task.config.mesh.shard_params)

    def with_sharding(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    return jax.tree.map(with_sharding, shapes, shardings)


def shardings_of(tree: Any) -> Any:
    """Return the sharding of each array or shape of a tree."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def state_shapes(task: Task) -> TrainState:
    """Return the shapes, types and shardings of a run's state; nothing is computed."""
    state: TrainState = with_shardings(unplaced_state(task), task)
    return state


def unplaced_state(task: Task) -> TrainState:
    """Return the shapes and types of a run's state, wherever it lies."""
    config = task.config
    shapes = tuple(task.trained.items())
    return _state_of_shapes(config.optimizer, config.limits.steps, shapes, scaled=uses_loss_scale(config.precision))


@lru_cache(maxsize=64)
def _state_of_shapes(
    optimizer: OptimizerConfig, steps: int, shapes: tuple[tuple[str, jax.ShapeDtypeStruct], ...], *, scaled: bool
) -> TrainState:
    """Return the state that an optimizer makes of parameters, as shapes.

    Kept, because optimizers trace a function for each array, and a plan needs the same state once for each program,
    machine and change that it looks at.
    """

    def begun(trained: Params) -> TrainState:
        return _init_state(optimizer, steps, trained, scaled=scaled)

    state: TrainState = jax.eval_shape(begun, dict(shapes))
    return state


def first_state_of(task: Task, trained: Params) -> TrainState:
    """Return the state before a run's first step."""
    config = task.config
    return _init_state(config.optimizer, config.limits.steps, trained, scaled=uses_loss_scale(config.precision))


def _init_state(optimizer: OptimizerConfig, steps: int, trained: Params, *, scaled: bool) -> TrainState:
    scale = initial_loss_scale() if scaled else None
    skipped = None if optimizer.max_nonfinite_steps is None else initial_skipped_steps()
    return first_state(trained, build_optimizer(optimizer, steps=steps), scale, skipped)


def optimizer_of(task: Task) -> optax.GradientTransformation:
    """Return the optimizer as the configuration sets it."""
    return build_optimizer(task.config.optimizer, steps=task.config.limits.steps)


def random_params(task: Task) -> Params:
    """Return random parameters as they lie while they are trained, equal for equal seeds."""
    config = task.config
    decoder = build(
        task.model.source.spec,
        key=jax.random.key(config.seed),
        params_dtype=config.precision.params,
        compute_dtype=config.precision.compute,
        remat=resolve_remat(config),
        adapters=task.model.adapters,
        quantised=task.model.quantised,
        runs=task.model.runs if task.is_scanned else (),
    )
    return flatten(decoder)[1]


def draw_program(task: Task, wanted: Callable[[str], bool]) -> Program:
    """Return the random parameters before the first step, those whose names are wanted."""

    def drawn() -> Params:
        return {name: value for name, value in random_params(task).items() if wanted(name)}

    shapes = with_shardings({name: shape for name, shape in task.shapes.items() if wanted(name)}, task)
    function = jitted(task, drawn, out_shardings=shardings_of(shapes))
    return Program(function=function, arguments=(), settings={})


def start_program(task: Task) -> Program:
    """Return the state before the first step; trained parameters become its own, so that they never exist twice."""
    state = state_shapes(task)
    function = jitted(
        task, lambda trained: first_state_of(task, trained), donate_argnums=(0,), out_shardings=shardings_of(state)
    )
    return Program(function=function, arguments=(state.trained,), settings={}, donated=(0,))


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What makes the first state; a run that is continued has it from its checkpoint."""

    draw: Compiled | None
    """Draws parameters: all where no files hold them, else those of adapters. None: all are read."""
    start: Compiled
    """Makes the state of them."""


def compiled_beginning(task: Task) -> Beginning:
    """Return what makes the first state of a run, compiled."""
    draw = None
    if not task.model.reads_weights:
        draw = draw_program(task, lambda name: True).compile()
    elif task.model.adapters:
        draw = draw_program(task, is_lora).compile()
    return Beginning(draw=draw, start=start_program(task).compile())


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
        read,
        {name: shape for name, shape in with_shardings(task.shapes, task).items() if stacked_names(name)[0] in read},
    )
    if model.adapters:
        found |= (draw or draw_program(task, lambda name: is_lora(name) and wanted(name)).compile()).call()
    return dict(sorted(found.items()))
