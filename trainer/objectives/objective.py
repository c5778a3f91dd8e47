"""The interface of objectives. Data, step, plan and manifest use it and know no objective by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from schemas.formats import format_value
from schemas.problems import Problem, problem_of
from trainer.config.tree import Config, ObjectiveConfig
from trainer.data.batches import HostBatch
from trainer.data.conversations import Tokenizer
from trainer.data.encode import EncodedData, encode_rows
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import is_chunked

Microbatch = Mapping[str, Array]
"""Arrays by name, `[batch …]`."""


class LossSums(NamedTuple):
    """Sums and maxima of one microbatch.

    Sums are added over microbatches and divided once by the sum of the weights, so gradient accumulation gives the same
    result as one large batch, whatever the tokens of each microbatch.
    """

    loss: Float[Array, ""]
    """Summed loss."""
    weight: Float[Array, ""]
    """Divisor of the loss, such as the number of tokens; 0 or more."""
    named: dict[str, Float[Array, ""]]
    """Further sums with the same divisor. Those that are fields of a metric row are recorded."""
    means: dict[str, tuple[Float[Array, ""], Float[Array, ""]]] = {}  # noqa: RUF012 - never changed
    """Further sums, each with its own divisor."""
    largest: dict[str, Float[Array, ""]] = {}  # noqa: RUF012 - never changed
    """Figures of 0 or more whose maximum over the step is recorded."""


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A loss with the rows, batches and models that it needs."""

    max_length: int
    """Tokens of the longest sequences, with padding."""
    chunk_positions: int | None
    """Positions of each sequence whose logits exist at the same time, or None for all."""
    template: str | None = None
    """Template of plain prompts, or None for the default of each kind of row."""
    sequences_each: int = 1
    """Sequences of an example: 2 for a pair, the group size for sampled completions."""
    updates_per_rollout: int = 0
    """Optimizer steps on the same sampled completions, or 0 if nothing is sampled."""
    needs_reference: bool = False
    """Whether the loss needs the model before training."""
    kind: ClassVar[str]
    """Name in `objective.kind`."""
    can_pack: ClassVar[bool] = False
    """Whether a sequence may hold several examples."""
    takes_pairs: ClassVar[bool] = False
    """Whether rows are pairs of answers."""

    @classmethod
    def from_config(cls, config: Config, **fields: Any) -> Objective:
        """Build the objective of a configuration with `fields` of its own, or raise a ProblemError."""
        chunk, size = config.memory.loss_chunk_tokens, config.batch.microbatch_size
        positions = None if chunk is None else max(1, chunk // size)
        return cls(
            max_length=config.data.max_length, chunk_positions=positions, template=config.data.template, **fields
        )

    @property
    def rematerialised_blocks(self) -> int:
        """Checkpointed loops over chunks of logits, of the model and of its reference."""
        return (1 + self.needs_reference) * is_chunked(self.max_length, self.chunk_positions)

    def manifest_entry(self) -> dict[str, Any]:
        """Return the objective for the manifest, with the keys of the configuration."""
        return {"kind": self.kind}

    def encode(self, rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, **options: Any) -> EncodedData:
        """Tokenize rows; see `encode_rows` for options and errors."""
        return encode_rows(rows, tokenizer, max_length=self.max_length, template=self.template, **options)

    @abstractmethod
    def collate(self, sequences: Sequence[Sequence[Any]], length: int | None = None) -> HostBatch:
        """Return the arrays of a batch by name, `[sequences …]`, padded to `length` or else to `max_length` tokens.

        Each sequence has one example, or several if rows are packed. A pair makes two sequences.
        """

    def batch_shapes(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return shapes and types of a microbatch by name; `tokens` is `[sequences length]`."""
        shape = (sequences, length or self.max_length)
        return {"tokens": jax.ShapeDtypeStruct(shape, jnp.int32), "loss_mask": jax.ShapeDtypeStruct(shape, jnp.bool_)}

    @abstractmethod
    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Compute the sums of a microbatch.

        `key` is for dropout, or None without dropout; `reference` is the model before training, if it is needed.
        """


USED_BY: Mapping[str, tuple[str, ...]] = {
    **{f"objective.{key}": ("grpo",) for key in vars(ObjectiveConfig()) if key != "kind"},
    "objective.beta": ("dpo",),
    "objective.label_smoothing": ("dpo",),
    "data.kind": ("supervised",),
    "data.supervise": ("supervised",),
    "data.buckets": ("supervised", "dpo"),
    "memory.layers": ("supervised", "dpo"),
}
"""Settings that only some objectives use. Objectives that are not named here use the same settings as `supervised`."""


def unused_settings(config: Config) -> list[Problem]:
    """Return a problem for each setting that is not the default and that the objective does not use."""
    default, kind = Config(model=config.model), config.objective.kind
    known = kind if any(kind in kinds for kinds in USED_BY.values()) else "supervised"
    problems = []
    for setting, kinds in USED_BY.items():
        group, key = setting.split(".")
        value, usual = (getattr(getattr(each, group), key) for each in (config, default))
        is_default = value == usual or (setting == "memory.layers" and value == "unrolled")
        if not is_default and known not in kinds:
            what = f"{setting} is {format_value(value)}, which objective.kind {kind} does not use."
            problems.append(problem_of("TP078", file=config.name, pointer=f"/{group}/{key}", what=what))
    return problems
