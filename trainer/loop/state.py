"""The initial state of a run: its shapes, and how trained and frozen parameters come to lie where they belong.

Parameters never exist twice: random ones are drawn in place, read ones are put there tensor by tensor, and the programs
that divide them into state and frozen ones take them over.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh

from trainer.config.tree import Config
from trainer.loop.mesh import state_shardings
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import TrainState, first_state
from trainer.methods.method import split
from trainer.methods.model import Model
from trainer.model.build import build
from trainer.model.files.loading import load_params
from trainer.model.params import Params, flatten


def placed(shapes: Any, config: Config, mesh: Mesh) -> Any:
    """Return shapes with the shardings under which a run's arrays lie."""
    shardings = state_shardings(shapes, mesh, shard_params=config.mesh.shard_params)

    def with_sharding(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    return jax.tree.map(with_sharding, shapes, shardings)


def state_shapes(model: Model, config: Config, mesh: Mesh) -> TrainState:
    """Return the shapes, types and shardings of a run's state; nothing is computed."""
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    state: TrainState = placed(jax.eval_shape(lambda tree: first_state(tree, optimizer), model.trained), config, mesh)
    return state


def initial_params(model: Model, config: Config, mesh: Mesh) -> Params:
    """Return all parameters before the first step, on their devices: read from the model's files, or drawn."""
    wanted: Params = placed(model.shapes, config, mesh)
    if model.reads_weights:
        return load_params(model.source, wanted)
    shardings = {name: shape.sharding for name, shape in wanted.items()}
    params: Params = jax.jit(lambda: drawn(model, config), out_shardings=shardings)()
    return params


def drawn(model: Model, config: Config) -> Params:
    """Return random parameters, equal for equal seeds."""
    decoder = build(
        model.source.spec,
        key=jax.random.key(config.seed),
        params_dtype=config.precision.params,
        compute_dtype=config.precision.compute,
        remat=config.memory.remat,
    )
    return flatten(decoder)[1]


def divided(params: Params, model: Model, config: Config) -> tuple[TrainState, Params]:
    """Return the state before the first step, and the frozen parameters beside it."""
    trained, frozen = split(model.method, params)
    return first_state(trained, build_optimizer(config.optimizer, steps=config.limits.steps)), frozen
