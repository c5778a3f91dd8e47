"""Supervised fine-tuning: cross-entropy of the next token on completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from trainer.config.tree import Config
from trainer.data.batches import HostBatch
from trainer.data.conversations import Tokenizer
from trainer.data.encode import EncodedData, EncodedRow, collate
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import next_token_targets, sum_chunks, summed_cross_entropy
from trainer.objectives.objective import LossSums, Microbatch, Objective


@dataclass(frozen=True, kw_only=True)
class SupervisedLoss(Objective):
    """Mean cross-entropy per supervised token, in nats."""

    packing: bool = False
    """Whether sequences hold several rows, which cannot attend to each other."""
    every_turn: bool = False
    """Whether all assistant turns are supervised, not only the last."""
    kind: ClassVar[str] = "supervised"
    can_pack: ClassVar[bool] = True

    @classmethod
    def from_config(cls, config: Config, **fields: Any) -> Objective:
        """Build the objective of a configuration."""
        own = {"packing": config.data.packing, "every_turn": config.data.supervise == "all"}
        return super().from_config(config, **own, **fields)

    def encode(self, rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, **options: Any) -> EncodedData:
        """Tokenize rows; see `encode_rows` for options and errors."""
        return super().encode(rows, tokenizer, **options, every_turn=self.every_turn)

    def collate(self, sequences: Sequence[Sequence[EncodedRow]], length: int | None = None) -> HostBatch:
        """Return `tokens` and `loss_mask`, and `segments` if rows are packed, each `[sequences length]`."""
        tokens, loss_mask, segments = collate(sequences, length or self.max_length)
        packed = {"segments": segments} if self.packing else {}
        return {"tokens": tokens, "loss_mask": loss_mask, **packed}

    def batch_shapes(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return shapes and types of a microbatch by name."""
        arrays = super().batch_shapes(sequences, length)
        return arrays | ({"segments": arrays["tokens"]} if self.packing else {})

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the summed cross-entropy and the number of supervised tokens."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        hidden = model.hidden(batch["tokens"], batch.get("segments"), dropout_key=key)
        loss = sum_chunks(summed_cross_entropy, hidden, targets, mask, model.logits, self.chunk_positions)
        return LossSums(loss=loss, weight=jnp.sum(mask).astype(jnp.float32), named={})
