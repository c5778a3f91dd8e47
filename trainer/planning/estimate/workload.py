"""What decides the memory of a run, as numbers: sizes of the model, of a microbatch, and who shares them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from trainer.config.tree import Config
from trainer.loop.state import unplaced_state
from trainer.loop.task import Task
from trainer.model.attention import AttentionKind
from trainer.model.layers import chunk_count
from trainer.model.spec import ModelSpec

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CPU_RECOMPUTES = jax.__version_info__ >= (0, 11, 1)
"""Whether a CPU's compiler recomputes layers that follow each other; earlier ones undo rematerialisation."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A run as its memory sees it, on one device."""

    config: Config
    spec: ModelSpec
    trained: Mapping[str, Any]
    """Parameters that learn, by name, as shapes with types."""
    frozen: Mapping[str, Any]
    reference: Mapping[str, Any]
    """The first parameters, kept beside those which learn; empty where the loss asks for none."""
    opt_state_bytes: int
    """Of what the optimizer keeps, over all devices."""
    shards: int
    """Devices that the state is divided over."""
    on_cpu: bool
    on_gpu: bool
    is_scanned: bool
    """Whether equal layers are stacked while it is trained."""
    attention: AttentionKind
    """How whole sequences are read while it is trained."""
    sequences: int
    """Of a microbatch, on one device."""
    length: int
    chunk_tokens: int
    """Tokens of a microbatch whose logits exist at one time."""
    mlp_tokens: int
    """Tokens of a microbatch whose MLP is computed at one time."""
    bytes_per_token: int
    """Of what a batch says about a token."""

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch, on one device."""
        return self.sequences * self.length

    @property
    def keeps_layers(self) -> bool:
        """Whether all that layers compute is kept for the backward pass."""
        return self.config.memory.remat == "none" or (self.on_cpu and not CPU_RECOMPUTES)

    @property
    def compute_item(self) -> int:
        """Bytes of a number in the compute type."""
        return ITEM_BYTES[self.config.precision.compute]

    @property
    def item(self) -> int:
        """Bytes of a number between layers. A CPU multiplies in float32 whatever the compute type, and keeps that."""
        return 4 if self.on_cpu else self.compute_item

    @property
    def params(self) -> Mapping[str, Any]:
        """All parameters by name."""
        return {**self.trained, **self.frozen}

    @property
    def split(self) -> str:
        """How a part that is divided over the devices says so."""
        return f" / {self.shards} devices" if self.shards > 1 else ""


def workload_of(task: Task, *, platform: str) -> Workload:
    """Return the workload of a run.

    Args:
        task: the run; its parameters as shapes.
        platform: cpu, gpu or tpu.
    """
    config = task.config
    arrays = task.objective.described(config.batch.microbatch_size)
    sequences, length = arrays["tokens"].shape
    tokens = sequences * length
    # A chunk is some positions of every sequence, and one at least.
    chunk_tokens = min((task.objective.chunk_positions or length) * sequences, tokens)
    chunks = chunk_count(sequences, length, config.memory.mlp_chunk_tokens)
    return Workload(
        config=config,
        spec=task.model.source.spec,
        trained=task.model.trained,
        frozen=task.model.frozen,
        reference=task.reference,
        opt_state_bytes=opt_state_bytes(task),
        shards=task.mesh.size if config.mesh.shard_params else 1,
        on_cpu=platform == "cpu",
        on_gpu=platform == "gpu",
        is_scanned=task.is_scanned,
        attention=task.attention,
        sequences=sequences,
        length=length,
        chunk_tokens=chunk_tokens,
        mlp_tokens=sequences * -(-length // chunks),
        bytes_per_token=sum(array.size * array.dtype.itemsize for array in arrays.values()) // tokens,
    )


def opt_state_bytes(task: Task) -> int:
    """Return the bytes of opt_state over all devices, from the shapes that the optimizer itself would make."""
    leaves = jax.tree.leaves(unplaced_state(task).opt_state)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def bytes_of(params: Mapping[str, Any]) -> int:
    """Return the bytes of parameters, each in the type that it is stored in."""
    return sum(int(value.size) * bits_of(value) for value in params.values()) // 8


def bits_of(value: Any) -> int:
    """Return the bits of one number of an array: `uint4` takes 4 on a device, whatever NumPy makes of it."""
    return _bits_of_type(value.dtype)


@cache
def _bits_of_type(dtype: Any) -> int:
    return 4 if str(dtype) in ("uint4", "int4") else int(dtype.itemsize) * 8


def count_of(params: Mapping[str, Any]) -> int:
    """Return the number of parameters."""
    return sum(int(value.size) for value in params.values())
