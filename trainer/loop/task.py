"""What is trained, toward what, and where: all that decides the programs of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from trainer.config.tree import Config
from trainer.data.batches import bucket_lengths
from trainer.loop.attending import attention_of
from trainer.loop.layout import is_scanned
from trainer.model.attention import AttentionKernel, AttentionKind
from trainer.model.decoder import Decoder
from trainer.model.model import Model, build_model, partition
from trainer.model.source import ModelSource
from trainer.model.stacks import Params
from trainer.objectives import build_objective
from trainer.objectives.objective import Objective
from trainer.recorder.environment import CompilerOptions, level_of

REFERENCE = "reference."
"""Begins the names of first parameters that are kept beside those which learn."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The model as its method adapts it, the objective, and the devices that share the work."""

    config: Config
    model: Model
    objective: Objective
    mesh: Mesh
    is_scanned: bool = False
    """Whether equal layers lie stacked while it is trained; checkpoints and evaluation have them apart."""
    platform: str | None = None
    """cpu, gpu or tpu, where the model is trained. None: it is not."""
    is_remat_open: bool = False
    """Whether the configuration left open what is computed again; `config` has what became of it."""

    @classmethod
    def of(cls, config: Config, source: ModelSource, mesh: Mesh, *, platform: str | None = None) -> Task:
        """Return the task of a configuration on a model.

        Args:
            config: the run.
            source: the model's shape, tokenizer and files.
            mesh: devices that share the work; `shapes_mesh` where nothing is to run.
            platform: cpu, gpu or tpu, where the model is trained: equal layers are stacked as the run has them.
                None: each layer lies apart and attention is plain, as for evaluation and export.

        Raises:
            ProblemError: exit code 2; the model has no place for the method's adapters, or settings defeat each other.
        """
        model = build_model(config, source)
        stacked = platform is not None and is_scanned(config, model, platform=platform, devices=mesh.size)
        objective = build_objective(config)
        return cls(config=config, model=model, objective=objective, mesh=mesh, is_scanned=stacked, platform=platform)

    @property
    def declared(self) -> Config:
        """The configuration as it was given."""
        if not self.is_remat_open:
            return self.config
        return replace(self.config, memory=replace(self.config.memory, remat="auto"))

    @property
    def graphdef(self) -> nnx.GraphDef[Decoder]:
        """The structure of the decoder that is trained."""
        return self.model.stacked.graphdef if self.is_scanned else self.model.graphdef

    @property
    def attention(self) -> AttentionKind:
        """How whole sequences are read while it is trained."""
        return attention_of(self.config, platform=self.platform)

    @property
    def kernel(self) -> AttentionKernel | None:
        """What reads them, None where they are read the plain way."""
        kind = self.attention
        return None if kind == "plain" else AttentionKernel(kind=kind, mesh=self.mesh if self.mesh.size > 1 else None)

    @property
    def shapes(self) -> Params:
        """The shapes of all its parameters, as they lie while it is trained."""
        return self.model.stacked.shapes if self.is_scanned else self.model.shapes

    @property
    def trained(self) -> Params:
        """The shapes of the parameters that learn, as they lie then."""
        return partition(self.model.method, self.shapes)[0]

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step over all devices, padding included, where sequences have the full length."""
        sequences = self.config.batch.microbatch_size * self.mesh.size
        tokens: int = self.objective.described(sequences)["tokens"].size
        return self.config.batch.accumulation_steps * tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths that sequences are padded to, ascending: a train step is compiled for each."""
        return bucket_lengths(self.config.data.max_length, self.config.data.buckets)

    @property
    def compiler_options(self) -> CompilerOptions:
        """Compiler options about the instructions that it may use; nothing if the devices are not CPUs."""
        # A plan that only adds up has a mesh without devices.
        on_cpu = isinstance(self.mesh, Mesh) and self.mesh.devices.flat[0].platform == "cpu"
        return level_of(self.config.precision.cpu_isa).options if on_cpu else ()

    @property
    def reference(self) -> Params:
        """The shapes of the first parameters, where the loss needs them and training changes them.

        Under adapters the frozen model is what it was, and nothing is kept besides.
        """
        kept = self.objective.needs_reference and not self.model.adapters
        return {f"{REFERENCE}{name}": shape for name, shape in self.shapes.items()} if kept else {}

    @property
    def frozen(self) -> Params:
        """The shapes of all that a step reads and does not change: frozen parameters, and the reference's."""
        return {**partition(self.model.method, self.shapes)[1], **self.reference}

    def changed(self, config: Config) -> Task:
        """Return the task under another configuration of the same model, on the same devices."""
        return replace(
            Task.of(config, self.model.source, self.mesh), is_scanned=self.is_scanned, platform=self.platform
        )


def reference_of(trained: Params) -> Params:
    """Return a copy of parameters under the names of the reference's."""
    return {f"{REFERENCE}{name}": jnp.copy(value) for name, value in trained.items()}


def without_reference(frozen: Params) -> Params:
    """Return the frozen parameters of the model alone."""
    return {name: value for name, value in frozen.items() if not name.startswith(REFERENCE)}
