"""The programs of a run by name, each built from shapes: nothing runs that was not planned.

| name | from | to |
|---|---|---|
| start | all parameters, used up | the first state, frozen parameters |
| restore | all parameters, used up | frozen parameters; the state comes from a checkpoint |
| train | state (used up where it is donated), frozen parameters, batch | the next state, what the step measured |
| decode | all parameters, prompts | what the model writes |
| export | all parameters | those of the plain model |
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from trainer.config.tree import Config
from trainer.generate.decode import decode, padded
from trainer.loop.mesh import batch_sharding
from trainer.loop.optimizer import build_optimizer
from trainer.loop.state import divided, placed, state_shapes
from trainer.loop.step import LossSums, Params, build_step
from trainer.methods.method import joined, split
from trainer.methods.model import Model
from trainer.model.decoder import Decoder
from trainer.model.params import bind
from trainer.objectives.objective import Microbatch, Objective, Sums


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program that can be called."""

    call: Any
    """The `jax.stages.Compiled`."""
    jaxpr: Any
    """The traced program, for reading back what runs."""
    seconds: float
    """How long tracing and compiling took."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program before it is compiled."""

    function: Any
    """A function under `jax.jit`."""
    arguments: tuple[Any, ...]
    """Shapes, types and shardings of what it is called with."""
    settings: dict[str, Any]
    """Static arguments by name."""

    def compile(self) -> Compiled:
        """Compile it for the devices of its arguments, which need not be there."""
        began = time.perf_counter()
        traced = self.function.trace(*self.arguments, **self.settings)
        return Compiled(call=traced.lower().compile(), jaxpr=traced.jaxpr, seconds=time.perf_counter() - began)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an evaluation asks, as far as it decides its program."""

    prompts: int
    longest_tokens: int
    """Of the longest prompt."""


def programs_of(
    model: Model, objective: Objective, config: Config, mesh: Mesh, *, asked: Asked | None = None
) -> dict[str, Program]:
    """Return the programs of a run; `decode` is among them where something is asked."""
    params, state = placed(model.shapes, config, mesh), state_shapes(model, config, mesh)
    trained, frozen = split(model.method, params)
    of_params, of_state, of_frozen = (jax.tree.map(lambda leaf: leaf.sharding, tree) for tree in (params, state, frozen))
    found = {
        "start": Program(
            function=jax.jit(
                lambda tree: divided(tree, model, config), donate_argnums=(0,), out_shardings=(of_state, of_frozen)
            ),
            arguments=(params,),
            settings={},
        ),
        "restore": Program(
            function=jax.jit(
                lambda tree: split(model.method, tree)[1], donate_argnums=(0,), out_shardings=of_frozen
            ),
            arguments=(params,),
            settings={},
        ),
        "train": train_program(model, objective, config, mesh),
        "export": Program(function=jax.jit(model.method.merged), arguments=(params,), settings={}),
    }
    if asked is not None:
        found["decode"] = decode_program(model, config, mesh, asked)
    return found


def train_program(model: Model, objective: Objective, config: Config, mesh: Mesh) -> Program:
    """Return one optimizer step."""
    state = state_shapes(model, config, mesh)
    frozen = split(model.method, placed(model.shapes, config, mesh))[1]
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    step = build_step(
        loss_of(model.graphdef, objective), optimizer, max_grad_norm=config.optimizer.max_grad_norm, seed=config.seed
    )
    sharding = batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct((config.batch.accumulation_steps, *shape.shape), shape.dtype, sharding=sharding)
        for name, shape in objective.described(config.batch.microbatch_size * mesh.size).items()
    }
    jitted = jax.jit(
        step,
        donate_argnums=(0,) if config.memory.donate else (),
        out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, state), None),
    )
    return Program(function=jitted, arguments=(state, frozen, batch), settings={})


def decode_program(model: Model, config: Config, mesh: Mesh, asked: Asked) -> Program:
    """Return the answer to one batch of prompts, as `generate` asks for it."""
    rows, width = min(config.evaluation.batch_size, asked.prompts), padded(asked.longest_tokens)
    described = jax.ShapeDtypeStruct
    return Program(
        function=decode,
        arguments=(
            model.graphdef,
            placed(model.shapes, config, mesh),
            described((rows, width), jnp.int32),
            described((rows,), jnp.int32),
            described((), jnp.int32),
        ),
        settings={"max_new_tokens": config.evaluation.max_new_tokens},
    )


def loss_of(graphdef: nnx.GraphDef[Decoder], objective: Objective) -> LossSums:
    """Return the objective's sums as a function of a decoder's parameters."""

    def loss_sums(trained: Params, frozen: Params, batch: Microbatch) -> Sums:
        return objective.loss_sums(bind(graphdef, joined(trained, frozen)), batch)

    return loss_sums
