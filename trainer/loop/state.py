"""What lies on the devices: shapes and shardings of parameters and state, and the parameters before the first step.

Parameters never exist twice: random ones are drawn in place, read ones are put there tensor by tensor.
"""

from __future__ import annotations

from typing import Any

import jax
import optax

from trainer.loop.loss_scale import first_loss_scale, is_scaled
from trainer.loop.mesh import state_shardings
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import TrainState, first_state
from trainer.loop.task import Task
from trainer.model.build import build
from trainer.model.params import Params, flatten


def placed(shapes: Any, task: Task) -> Any:
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
    state: TrainState = placed(jax.eval_shape(lambda trained: first_state_of(task, trained), task.model.trained), task)
    return state


def first_state_of(task: Task, trained: Params) -> TrainState:
    """Return the state before a run's first step."""
    scale = first_loss_scale() if is_scaled(task.config.precision) else None
    return first_state(trained, optimizer_of(task), scale)


def optimizer_of(task: Task) -> optax.GradientTransformation:
    """Return the optimizer as the configuration sets it."""
    return build_optimizer(task.config.optimizer, steps=task.config.limits.steps)


def random_params(task: Task) -> Params:
    """Return random parameters, equal for equal seeds."""
    config = task.config
    decoder = build(
        task.model.source.spec,
        key=jax.random.key(config.seed),
        params_dtype=config.precision.params,
        compute_dtype=config.precision.compute,
        remat=config.memory.remat,
        adapters=task.model.adapters,
        quantised=task.model.quantised,
    )
    return flatten(decoder)[1]
