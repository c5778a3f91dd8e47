"""The compiled train step with the state it starts from: where model, optimizer, mesh and loss come together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int32

from trainer.config.tree import Config
from trainer.loop.mesh import batch_sharding, build_mesh, state_shardings
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import Batch, LossSum, Params, StepMetrics, TrainState, build_step, first_state
from trainer.model.decoder import Decoder
from trainer.model.params import bind
from trainer.objectives.cross_entropy import chunked_cross_entropy
from trainer.planning.devices import Devices


@dataclass(frozen=True, kw_only=True)
class Program:
    """One compiled optimizer step and what surrounds it."""

    step: Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]
    """The compiled step; it consumes the state it is given where the state is donated."""
    compiled: Any
    """The `jax.stages.Compiled` behind it."""
    jaxpr: Any
    """The traced program, for reading back what runs."""
    mesh: Mesh
    compile_seconds: float


def batch_size_of(config: Config, *, devices: int) -> int:
    """Return the sequences per optimizer step over all devices."""
    return config.batch.microbatch_size * devices * config.batch.accumulation_steps


def chunk_positions_of(config: Config) -> int | None:
    """Return the positions of each sequence whose logits exist at one time in the loss. None: all."""
    chunk_tokens = config.memory.loss_chunk_tokens
    return None if chunk_tokens is None else max(1, chunk_tokens // config.batch.microbatch_size)


def loss_of(graphdef: nnx.GraphDef[Decoder], config: Config) -> LossSum:
    """Return the summed loss of a decoder as a function of its parameters."""
    chunk_positions = chunk_positions_of(config)

    def loss_sum(
        params: Params,
        tokens: Int32[Array, "batch seq"],
        targets: Int32[Array, "batch seq"],
        mask: Bool[Array, "batch seq"],
    ) -> Array:
        decoder = bind(graphdef, params)
        hidden = decoder.hidden(tokens)
        return chunked_cross_entropy(hidden, targets, mask, decoder.logits, chunk_positions=chunk_positions)

    return loss_sum


def start_state(params: Params, config: Config, devices: Devices) -> TrainState:
    """Return the state before the first step, where its params lie; they become the state's own and are used up."""
    state: TrainState = compile_start(params, config, devices)(params)
    return state


def compile_start(params: Mapping[str, Any], config: Config, devices: Devices) -> Any:
    """Return the compiled program from params, donated, to the first state: params never exist twice.

    Args:
        params: by name, as arrays or as shapes, each with its sharding.
        config: the run.
        devices: where the state is to lie.
    """
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    shardings = jax.tree.map(lambda shape: shape.sharding, state_shapes(params, config, devices))
    make = jax.jit(lambda tree: first_state(tree, optimizer), donate_argnums=(0,), out_shardings=shardings)
    return make.lower(params).compile()


def state_shapes(params: Mapping[str, Any], config: Config, devices: Devices) -> TrainState:
    """Return the shapes, types and shardings of a run's state; nothing is computed.

    Args:
        params: by name, as arrays or as shapes.
        config: the run.
        devices: where the state is to lie.
    """
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    shapes = jax.eval_shape(lambda tree: first_state(tree, optimizer), dict(params))
    shardings = state_shardings(shapes, build_mesh(devices.list), shard_params=config.mesh.shard_params)

    def placed(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    placed_shapes: TrainState = jax.tree.map(placed, shapes, shardings)
    return placed_shapes


def compile_program(graphdef: nnx.GraphDef[Decoder], state: TrainState, config: Config, devices: Devices) -> Program:
    """Compile the train step for the shapes of this run."""
    mesh = build_mesh(devices.list)
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    step = build_step(
        loss_of(graphdef, config), optimizer, max_grad_norm=config.optimizer.max_grad_norm, seed=config.seed
    )
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    rows = config.batch.microbatch_size * len(devices.list)
    shape = (config.batch.accumulation_steps, rows, config.data.max_length)
    described: Any = partial(jax.ShapeDtypeStruct, shape, sharding=batch_sharding(mesh))
    batch = Batch(tokens=described(dtype=jnp.int32), loss_mask=described(dtype=jnp.bool_))
    began = time.perf_counter()
    jitted = jax.jit(
        step,
        donate_argnums=(0,) if config.memory.donate else (),
        out_shardings=(shardings, None),
    )
    traced = jitted.trace(state, batch)
    compiled = traced.lower().compile()
    return Program(
        step=compiled,
        compiled=compiled,
        jaxpr=traced.jaxpr,
        mesh=mesh,
        compile_seconds=time.perf_counter() - began,
    )
