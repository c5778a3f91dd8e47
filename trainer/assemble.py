"""The model, its state and its compiled step, put together for the devices of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
from flax import nnx

from trainer.config.tree import Config
from trainer.loop.checkpoint import restore
from trainer.loop.mesh import build_mesh, state_shardings
from trainer.loop.program import Program, compile_program, start_state, state_shapes
from trainer.loop.step import TrainState
from trainer.model.build import build
from trainer.model.decoder import Decoder
from trainer.model.files.loading import load_params
from trainer.model.files.source import ModelSource
from trainer.model.params import Params, flatten, params_sha256
from trainer.planning.devices import Devices
from trainer.prepare import Prepared, abstract_decoder, reads_weights
from trainer.resume import weights_of


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a run begins with."""

    graphdef: nnx.GraphDef[Decoder]
    """The decoder's structure, without parameters."""
    state: TrainState
    weights: str
    """pretrained or random: where the parameters first came from."""


@dataclass(kw_only=True)
class Assembly:
    """A run ready for its first step."""

    graphdef: nnx.GraphDef[Decoder]
    """The decoder's structure, without parameters."""
    program: Program
    state: TrainState
    """The state before the run's first step, until it is handed over."""
    weights: str
    """pretrained or random: where the parameters first came from."""
    params_sha256: str
    """Hash of the parameters before the run's first step."""

    def hand_over(self) -> TrainState:
        """Return the state and let go of it: where it is not donated, whoever holds it keeps its memory."""
        state = self.state
        del self.state
        return state


def assemble(prepared: Prepared, continued: Start | None = None) -> Assembly:
    """Return everything that the loop needs, on the devices.

    Args:
        prepared: the run.
        continued: what it goes on from. None: it begins anew.

    Raises:
        ProblemError: exit code 2; the model's files cannot be used.
    """
    start = continued or begun(prepared)
    return Assembly(
        graphdef=start.graphdef,
        program=compile_program(start.graphdef, start.state, prepared.config, prepared.devices),
        state=start.state,
        weights=start.weights,
        params_sha256=params_sha256(start.state.params),
    )


def begun(prepared: Prepared) -> Start:
    """Return what a run begins with that continues none."""
    graphdef, params, weights = first_params(prepared.config, prepared.source, prepared.devices)
    return Start(graphdef=graphdef, state=start_state(params, prepared.config, prepared.devices), weights=weights)


def continued_from(resume: Path, prepared: Prepared) -> Start:
    """Return the newest checkpoint of the run to continue as what this one begins with.

    Raises:
        ProblemError: exit code 2, it cannot be used; 4, the device has no room for it.
    """
    config, source = prepared.config, prepared.source
    graphdef, state = restored(resume, config, source, prepared.devices)
    by_config = "pretrained" if reads_weights(config, source) else "random"
    return Start(graphdef=graphdef, state=state, weights=weights_of(resume) or by_config)


def restored(
    folder: Path, config: Config, source: ModelSource, devices: Devices
) -> tuple[nnx.GraphDef[Decoder], TrainState]:
    """Return the structure of a run's model, and its newest checkpoint; no other parameters are drawn or read."""
    graphdef, shapes = flatten(abstract_decoder(config, source))
    return graphdef, restore(folder, state_shapes(shapes, config, devices))


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

    graphdef, shapes = flatten(abstract_decoder(config, source))
    mesh = build_mesh(devices.list)
    shardings = state_shardings(shapes, mesh, shard_params=config.mesh.shard_params)
    if not reads_weights(config, source):
        return graphdef, jax.jit(drawn, out_shardings=shardings)(), "random"
    wanted = {
        name: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=shardings[name]) for name, shape in shapes.items()
    }
    return graphdef, load_params(source, wanted), "pretrained"
