"""The model, its state and its compiled step, put together for the devices of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
from flax import nnx

from trainer.config.tree import Config
from trainer.loop.checkpoint import restore
from trainer.loop.mesh import build_mesh, state_shardings
from trainer.loop.program import Program, compile_program, start_state
from trainer.loop.step import TrainState
from trainer.model.build import abstract, build
from trainer.model.decoder import Decoder
from trainer.model.loading import load_params
from trainer.model.params import Params, flatten, params_sha256
from trainer.model.source import ModelSource
from trainer.planning.devices import Devices
from trainer.prepare import Prepared, reads_weights


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """A run ready for its first step."""

    graphdef: nnx.GraphDef[Decoder]
    """The decoder's structure, without parameters."""
    program: Program
    state: TrainState
    """The state before the run's first step. The loop consumes it."""
    weights: str
    """pretrained or random: where the parameters first came from."""
    params_sha256: str
    """Hash of the parameters before the run's first step."""


def assemble(prepared: Prepared, *, resume: Path | None) -> Assembly:
    """Return everything that the loop needs, on the devices.

    Args:
        prepared: the run.
        resume: folder of a run whose newest checkpoint replaces the first state.

    Raises:
        ProblemError: exit code 2; the model's files or the checkpoint cannot be used.
    """
    graphdef, params, weights = first_params(prepared.config, prepared.source, prepared.devices)
    state = start_state(params, prepared.config, prepared.devices)
    del params  # the state holds them; a second reference would keep them from being donated
    if resume is not None:
        state = restore(resume, state)
    return Assembly(
        graphdef=graphdef,
        program=compile_program(graphdef, state, prepared.config, prepared.devices),
        state=state,
        weights=weights,
        params_sha256=params_sha256(state.params),
    )


def first_params(config: Config, source: ModelSource, devices: Devices) -> tuple[nnx.GraphDef[Decoder], Params, str]:
    """Return the decoder's structure, its first parameters on their devices, and `pretrained` or `random`.

    Neither way ever holds a whole second copy: random parameters are drawn where they will lie, read ones are put
    there tensor by tensor.
    """
    spec, precision = source.spec, config.precision

    def drawn() -> Params:
        decoder = build(
            spec,
            key=jax.random.key(config.seed),
            params_dtype=precision.params,
            compute_dtype=precision.compute,
            remat=config.memory.remat,
        )
        return flatten(decoder)[1]

    graphdef, shapes = flatten(
        abstract(spec, params_dtype=precision.params, compute_dtype=precision.compute, remat=config.memory.remat)
    )
    mesh = build_mesh(devices.list)
    shardings = state_shardings(shapes, mesh, shard_params=config.mesh.shard_params)
    if not reads_weights(config, source):
        return graphdef, jax.jit(drawn, out_shardings=shardings)(), "random"
    wanted = {
        name: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=shardings[name]) for name, shape in shapes.items()
    }
    return graphdef, load_params(source, wanted), "pretrained"
