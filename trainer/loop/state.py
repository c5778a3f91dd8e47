"""What lies on the devices: shapes and shardings of parameters and state, and the parameters before the first step.

Parameters never exist twice: random ones are drawn in place, read ones are put there tensor by tensor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import optax

from trainer.config.tree import OptimizerConfig
from trainer.loop.loss_scale import first_loss_scale, is_scaled
from trainer.loop.mesh import state_shardings
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import TrainState, first_state
from trainer.loop.task import Task
from trainer.model.build import build
from trainer.model.params import Params, flatten


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
    return _state_of_shapes(config.optimizer, config.limits.steps, shapes, scaled=is_scaled(config.precision))


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
    return _init_state(config.optimizer, config.limits.steps, trained, scaled=is_scaled(config.precision))


def _init_state(optimizer: OptimizerConfig, steps: int, trained: Params, *, scaled: bool) -> TrainState:
    scale = first_loss_scale() if scaled else None
    return first_state(trained, build_optimizer(optimizer, steps=steps), scale)


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
        remat=config.memory.remat,
        adapters=task.model.adapters,
        quantised=task.model.quantised,
        runs=task.model.runs if task.is_scanned else (),
    )
    return flatten(decoder)[1]
