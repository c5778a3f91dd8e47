"""Supervised learning: cross-entropy of the next token where the row's completion stands.

`encode.py` states what of a row is supervised, `cross_entropy.py` how the loss avoids `[batch seq vocab]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.data.encode import EncodedData, Tokenizer, encode_rows
from trainer.data.files.encoded import EncodedRow, laid_out
from trainer.data.source import HostBatch
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import chunked_cross_entropy, in_several_chunks, next_token_targets
from trainer.objectives.objective import LossSums, Microbatch
from trainer.objectives.unused import unused_settings


@dataclass(frozen=True, kw_only=True)
class SupervisedLoss:
    """Mean cross-entropy per supervised token, in nats."""

    max_length: int
    """Tokens of the longest sequences, padding included."""
    chunk_positions: int | None
    """Positions of each sequence whose logits exist at one time. None: all."""
    packing: bool = False
    """Sequences hold several rows, which do not see each other."""
    every_turn: bool = False
    """All turns of the assistant are learned, not only the last."""
    template: str | None = None
    """How plain prompts are written. None: as by default those of each row's shape."""
    kind: ClassVar[str] = "supervised"
    can_pack: ClassVar[bool] = True
    takes_pairs: ClassVar[bool] = False
    sequences_each: ClassVar[int] = 1
    updates_per_rollout: ClassVar[int] = 0
    needs_reference: ClassVar[bool] = False

    def manifest_entry(self) -> dict[str, Any]:
        """Return the kind, which is all that there is."""
        return {"kind": self.kind}

    def encode(
        self,
        rows: Sequence[dict[str, Any]],
        tokenizer: Tokenizer,
        *,
        file: str,
        lines: Sequence[int],
        max_positions: int,
    ) -> EncodedData:
        """Return each row as token ids, with how many of them are a prompt that is not learned."""
        return encode_rows(
            rows,
            tokenizer,
            max_length=self.max_length,
            file=file,
            lines=lines,
            max_positions=max_positions,
            every_turn=self.every_turn,
            template=self.template,
        )

    def collate(self, sequences: Sequence[Sequence[EncodedRow]], length: int | None = None) -> HostBatch:
        """Return `tokens` and `loss_mask`, with `segments` where rows are packed, each `[sequences length]`."""
        tokens, loss_mask, segments = laid_out(sequences, length or self.max_length)
        packed = {"segments": segments} if self.packing else {}
        return {"tokens": tokens, "loss_mask": loss_mask, **packed}

    def described(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes of `tokens` and `loss_mask`, and of `segments` where rows are packed."""
        shape = (sequences, length or self.max_length)
        packed = {"segments": jax.ShapeDtypeStruct(shape, jnp.int32)} if self.packing else {}
        return {
            "tokens": jax.ShapeDtypeStruct(shape, jnp.int32),
            "loss_mask": jax.ShapeDtypeStruct(shape, jnp.bool_),
            **packed,
        }

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the summed cross-entropy and the number of supervised tokens."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        hidden = model.hidden(batch["tokens"], batch.get("segments"), dropout_key=key)
        loss = chunked_cross_entropy(hidden, targets, mask, model.logits, chunk_positions=self.chunk_positions)
        return LossSums(loss=loss, weight=jnp.sum(mask).astype(jnp.float32), named={})

    @property
    def rematerialised_blocks(self) -> int:
        """The loop over chunks, where there are several."""
        return int(in_several_chunks(self.max_length, self.chunk_positions))


def supervised_of(config: Config) -> SupervisedLoss:
    """Return the objective as a configuration sets it; a chunk is some positions of every sequence, one at least.

    Raises:
        ProblemError: exit code 2; settings of another objective are given, which would have no effect.
    """
    if problems := unused_settings(config, used=()):
        raise ProblemError(problems, exit_code=2)
    chunk_tokens = config.memory.loss_chunk_tokens
    positions = None if chunk_tokens is None else max(1, chunk_tokens // config.batch.microbatch_size)
    return SupervisedLoss(
        max_length=config.data.max_length,
        chunk_positions=positions,
        packing=config.data.packing,
        every_turn=config.data.supervise == "all",
        template=config.data.template,
    )
