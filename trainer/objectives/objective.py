"""What training makes small: an objective states what a row becomes, what a batch is, and what is minimised.

Each objective has a file of its own and an entry in `OBJECTIVES` (see `__init__.py`); data, step, plan and manifest
call it and know none by name. Which parameters are trained is the method's decision (`trainer/model/model.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, Key

from trainer.data.encode import EncodedData, Tokenizer
from trainer.data.source import HostBatch
from trainer.model.decoder import Decoder

Microbatch = Mapping[str, Array]
"""Arrays by name, `[batch …]`, as the objective describes them."""


class LossSums(NamedTuple):
    """What one microbatch adds to a step.

    Sums and largest values, so that a step over several microbatches equals one over all their rows, however many
    tokens or pairs each of them has: sums are added and divided once, by the sum of the weights.
    """

    loss: Float[Array, ""]
    """Summed loss."""
    weight: Float[Array, ""]
    """What it is divided by, such as the number of supervised tokens; 0 or more."""
    named: dict[str, Float[Array, ""]]
    """Further sums by name, divided by the weight too. One whose name is a field of a metric row is written there."""
    means: dict[str, tuple[Float[Array, ""], Float[Array, ""]]] = {}  # noqa: RUF012 - nobody writes into it
    """Sums by name, each with what it is divided by: a mean over tokens beside a loss over sequences."""
    largest: dict[str, Float[Array, ""]] = {}  # noqa: RUF012
    """Figures by name, 0 or more, of which a step has the largest."""


@runtime_checkable
class Objective(Protocol):
    """What is minimised, and what it needs of rows."""

    @property
    def kind(self) -> str:
        """The name in `objective.kind`."""

    def encode(
        self,
        rows: Sequence[dict[str, Any]],
        tokenizer: Tokenizer,
        *,
        file: str,
        lines: Sequence[int],
        max_positions: int,
    ) -> EncodedData:
        """Return rows as examples, each of a kind that `collate` takes, with their counts.

        Args:
            rows: rows as `dataset_row.schema.json` allows them.
            tokenizer: the model's.
            file: what messages call the dataset.
            lines: where its rows stand in it; rows beyond them were generated.
            max_positions: the model's.

        Raises:
            ProblemError: exit code 2, with everything that would not be learned.
        """

    @property
    def can_pack(self) -> bool:
        """Whether a sequence may hold several examples."""

    @property
    def takes_pairs(self) -> bool:
        """Whether rows are pairs of answers: an example is then two sequences, and `data.kind` has no effect."""

    @property
    def sequences_each(self) -> int:
        """The sequences that an example makes: 2 of a pair, as many as a group has of a prompt."""

    @property
    def updates_per_rollout(self) -> int:
        """Optimizer steps on completions that are drawn once. 0: rows are learned as they stand, nothing is drawn."""

    @property
    def needs_reference(self) -> bool:
        """Whether the loss needs the model as it was before training, too."""

    def manifest_entry(self) -> dict[str, Any]:
        """Return what the manifest states of the objective, under the configuration's own keys."""

    def collate(self, sequences: Sequence[Sequence[Any]], length: int | None = None) -> HostBatch:
        """Return arrays of `[sequences …]` by name, of the shapes and types that `described` states.

        Args:
            sequences: the examples of each: one, or several where `data.packing` is on. A pair makes two sequences,
                one behind the other.
            length: tokens of each sequence, padding included. None: `data.max_length`.
        """

    def described(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the arrays of a microbatch by name, for this many sequences; `tokens` is `[batch seq]` among them.

        Args:
            sequences: how many.
            length: tokens of each, padding included. None: `data.max_length`.
        """

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the sums of a microbatch.

        Args:
            model: with the parameters of this step.
            batch: its arrays.
            key: for what is drawn at random in this microbatch, as adapters drop inputs. None: nothing is.
            reference: the model as it was before training. None: the objective needs none.
        """

    @property
    def chunk_positions(self) -> int | None:
        """Positions of each sequence whose logits exist at one time. None: all."""

    @property
    def rematerialised_blocks(self) -> int:
        """Blocks of its own that the backward pass computes again; the model's layers are distinguished from them."""
