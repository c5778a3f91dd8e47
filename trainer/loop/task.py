"""What a run trains, and on which devices: everything that decides its compiled programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config
from trainer.data.batches import bucket_lengths
from trainer.loop.optimizer import CodedMoment
from trainer.model.attention import AttentionKernel, AttentionKind
from trainer.model.decoder import Decoder
from trainer.model.model import Model, build_model, partition
from trainer.model.source import ModelSource
from trainer.model.stacks import Params
from trainer.objectives import build_objective, find_contradictions
from trainer.objectives.objective import Objective
from trainer.recorder.environment import CompilerOptions, select_level

AXIS = "devices"
"""The only axis of a mesh: it splits the batch and, with `mesh.shard_params`, parameters and optimizer state."""

REFERENCE = "reference."
"""Prefix of the initial parameters that a loss compares with."""

SPLASH_FROM, BLOCKWISE_FROM = 1024, 2048
"""Length from which `memory.attention: auto` uses splash attention on a TPU, and blockwise on other accelerators."""

MIN_LAYERS_SAVED = 6
"""Layers that stacking must remove from a program for `memory.layers: auto`; compiling fewer takes a second or two."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model with its training method, its objective, and a mesh of devices."""

    config: Config
    model: Model
    objective: Objective
    mesh: Mesh
    is_scanned: bool = False
    """Whether equal layers are stacked in training; checkpoints and evaluation always have them unstacked."""
    platform: str | None = None
    """cpu, gpu or tpu, or None if nothing is trained."""
    is_remat_open: bool = False
    """Whether the configuration had `memory.remat: auto`; `config` has the resolved value."""

    @classmethod
    def of(cls, config: Config, source: ModelSource, mesh: Mesh, *, platform: str | None = None) -> Task:
        """Return the task of a configuration on a mesh of devices, or of `shapes_mesh` if nothing is executed.

        `platform` is None for evaluation and export, which use unstacked layers and plain attention. Raises
        `ProblemError` with exit code 2 if the model lacks projections that the method needs, or settings conflict.
        """
        model = build_model(config, source, on_cpu=platform in (None, "cpu"))
        is_scanned = platform is not None and uses_scan(config, model, platform=platform, devices=mesh.size)
        objective = build_objective(config)
        return cls(config=config, model=model, objective=objective, mesh=mesh, is_scanned=is_scanned, platform=platform)

    @property
    def declared(self) -> Config:
        """The configuration as it was given."""
        if not self.is_remat_open:
            return self.config
        return replace(self.config, memory=replace(self.config.memory, remat="auto"))

    @property
    def graphdef(self) -> nnx.GraphDef[Decoder]:
        """Structure of the decoder in training."""
        return self.model.stacked.graphdef if self.is_scanned else self.model.graphdef

    @property
    def attention(self) -> AttentionKind:
        """Attention over whole sequences in training."""
        return choose_attention(self.config, platform=self.platform)

    @property
    def kernel(self) -> AttentionKernel | None:
        """Kernel of the attention in training, or None for plain attention."""
        mesh = self.mesh if self.mesh.size > 1 else None
        return None if self.attention == "plain" else AttentionKernel(kind=self.attention, mesh=mesh)

    @property
    def shapes(self) -> Params:
        """Shapes of all parameters in training."""
        return self.model.stacked.shapes if self.is_scanned else self.model.shapes

    @property
    def trained(self) -> Params:
        """Shapes of the trained parameters."""
        return partition(self.model.method, self.shapes)[0]

    @property
    def reference(self) -> Params:
        """Shapes of the initial parameters, if the loss needs them and training overwrites them.

        With adapters, the frozen base model is the reference, so nothing is stored.
        """
        kept = self.objective.needs_reference and not self.model.adapters
        return {f"{REFERENCE}{name}": shape for name, shape in self.shapes.items()} if kept else {}

    @property
    def frozen(self) -> Params:
        """Shapes of everything that a step reads without changing it: frozen and reference parameters."""
        return {**partition(self.model.method, self.shapes)[1], **self.reference}

    @property
    def tokens_per_step(self) -> int:
        """Tokens of an optimizer step over all devices, with every sequence padded to the full length."""
        batch = self.config.batch
        tokens: int = self.objective.batch_shapes(batch.microbatch_size * self.mesh.size)["tokens"].size
        return batch.accumulation_steps * tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """Padded sequence lengths, ascending; a train step is compiled for each."""
        return bucket_lengths(self.config.data.max_length, self.config.data.buckets)

    @property
    def compiler_options(self) -> CompilerOptions:
        """Compiler options for the CPU instruction level; empty on other devices."""
        # The mesh of a plan has no devices.
        on_cpu = isinstance(self.mesh, Mesh) and self.mesh.devices.flat[0].platform == "cpu"
        return select_level(self.config.precision.cpu_isa).options if on_cpu else ()

    def changed(self, config: Config) -> Task:
        """Return the task of another configuration with the same model and devices."""
        task = Task.of(config, self.model.source, self.mesh)
        return replace(task, is_scanned=self.is_scanned, platform=self.platform)


def copy_reference_params(trained: Params) -> Params:
    """Copy parameters under the names of the reference model."""
    return {f"{REFERENCE}{name}": jnp.copy(value) for name, value in trained.items()}


def drop_reference_params(frozen: Params) -> Params:
    """Return the frozen parameters without the reference model."""
    return {name: value for name, value in frozen.items() if not name.startswith(REFERENCE)}


def uses_scan(config: Config, model: Model, *, platform: str, devices: int) -> bool:
    """Return whether equal layers are stacked in training (`memory.layers`).

    A stack is compiled once, and the gradients of its layers exist together. A CPU compiler keeps all gradients anyway,
    so there stacking takes less time to compile, less memory and no more time to run. An accelerator could otherwise
    apply each layer's update as soon as its gradient exists: Gemma 2B takes 13.3 GiB of a TPU unrolled and 22.6 GiB
    stacked. Decoding uses unstacked layers, as a loop would copy each layer's weights for every token; so do runs that
    sample.
    """
    if build_objective(config).updates_per_rollout:
        return False
    if config.memory.layers != "auto":
        return config.memory.layers == "scanned"
    saved = model.source.spec.layers - len(model.layer_groups)
    return platform == "cpu" and saved >= MIN_LAYERS_SAVED and not _obstacles_to_scan(config, devices=devices)


def _obstacles_to_scan(config: Config, *, devices: int) -> list[str]:
    obstacles = [f"{devices} devices share the work"] if devices > 1 else []
    return obstacles + (["optimizer.name is adafactor"] if config.optimizer.name == "adafactor" else [])


def choose_attention(config: Config, *, platform: str | None) -> AttentionKind:
    """Return the attention over whole sequences; decoding (`platform=None`) uses plain attention with a cache."""
    if platform is None:
        return "plain"
    if config.memory.attention != "auto":
        return config.memory.attention
    length = config.data.max_length
    if length >= SPLASH_FROM and not _obstacles_to_splash(config, platform=platform):
        return "splash"
    return "blockwise" if platform != "cpu" and length >= BLOCKWISE_FROM else "plain"


def _obstacles_to_splash(config: Config, *, platform: str) -> list[str]:
    obstacles = [f"the device is a {platform.upper()}"] if platform != "tpu" else []
    obstacles += ["precision.compute is float16"] if config.precision.compute == "float16" else []
    return obstacles + (["memory.layers is scanned"] if config.memory.layers == "scanned" else [])


def refuse_conflicts(config: Config, *, platform: str, devices: int) -> None:
    """Refuse settings that conflict with each other or with the devices (`ProblemError`, exit code 2)."""
    problems = find_contradictions(config)
    for code, key, value, obstacles in (
        ("TP706", "layers", "scanned", _obstacles_to_scan(config, devices=devices)),
        ("TP707", "attention", "splash", _obstacles_to_splash(config, platform=platform)),
    ):
        if obstacles and getattr(config.memory, key) == value:
            what = f"memory.{key} is {value} and {' and '.join(obstacles)}."
            problems.append(problem_of(code, file=config.name, pointer=f"/memory/{key}", what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)


def build_mesh(devices: Sequence[Any]) -> Mesh:
    """Return a mesh with one axis over the devices."""
    return Mesh(np.array(devices), (AXIS,))


def shapes_mesh(devices: int) -> Mesh:
    """Return a mesh without real devices, to trace programs that are not executed."""
    # Without axis_types, jax 0.12 and later expect every sharding to be explicit.
    return cast(Mesh, AbstractMesh((devices,), (AXIS,), axis_types=(AxisType.Auto,)))


def state_shardings(state: Any, mesh: Mesh, *, shard_params: bool) -> Any:
    """Return a sharding for each array of a train state: split along its longest divisible axis, or replicated.

    Splitting the state over the devices that split the batch is fully sharded data parallelism (ZeRO stage 3, arXiv
    1910.02054); the compiler inserts the gathers. Scales of 8-bit moments are split like their codes if the devices
    divide them, and replicated otherwise.
    """

    def sharding(leaf: Any, like: Any) -> NamedSharding:
        if not shard_params or mesh.size == 1:
            return NamedSharding(mesh, PartitionSpec())
        spec = longest_axis(like.shape, mesh.size)[: leaf.ndim]
        divides = all(axis is None or size % mesh.size == 0 for axis, size in zip(spec, leaf.shape, strict=False))
        return NamedSharding(mesh, PartitionSpec(*spec) if divides else PartitionSpec())

    def shardings(node: Any) -> Any:
        if not isinstance(node, CodedMoment):
            return sharding(node, node)
        scales = {name: sharding(scale, node.codes[name]) for name, scale in node.scales.items()}
        return CodedMoment({name: sharding(codes, codes) for name, codes in node.codes.items()}, scales)

    return jax.tree.map(shardings, state, is_leaf=lambda node: isinstance(node, CodedMoment))


def longest_axis(shape: Sequence[int], devices: int) -> PartitionSpec:
    """Split an array along its longest axis that `devices` divides (the second of (100, 64) for 8), or replicate it."""
    divisible = [axis for axis, length in enumerate(shape) if length >= devices and length % devices == 0]
    longest = max(divisible, key=lambda axis: shape[axis], default=None)
    return PartitionSpec(*(AXIS if axis == longest else None for axis in range(0 if longest is None else len(shape))))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of `[accum batch …]`, split over the devices along `batch`."""
    return NamedSharding(mesh, PartitionSpec(None, AXIS))


def rows_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of `[rows …]`, split over the devices along `rows`."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def add_shardings(shapes: Any, task: Task) -> Any:
    """Add the shardings of a run's arrays to shapes."""
    shardings = state_shardings(shapes, task.mesh, shard_params=task.config.mesh.shard_params)
    return jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding), shapes, shardings
    )
