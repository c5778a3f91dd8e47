"""Direct Preference Optimization (Rafailov et al. 2023, arXiv 2305.18290): chosen answers against rejected ones.

The reference is the model before training: the model without its adapters under LoRA, otherwise a copy of the first
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from schemas.problems import ProblemError, problem_of, truncate_problems
from trainer.config.tree import Config
from trainer.data.batches import HostBatch
from trainer.data.conversations import Tokenizer
from trainer.data.encode import EncodedData, EncodedRow, collate, row_lines
from trainer.data.files import LazySequence
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import cross_entropies, next_token_targets, sum_chunks
from trainer.objectives.objective import LossSums, Microbatch, Objective

Pair = tuple[EncodedRow, EncodedRow]
"""The chosen and the rejected answer, each after the prompt."""


@dataclass(frozen=True, kw_only=True)
class DirectPreference(Objective):
    """Mean over pairs of `-log σ(β · (log-ratio of the chosen answer - log-ratio of the rejected one))`, in nats.

    The log-ratio of an answer is its log-probability under the model minus that under the reference (equation 7).
    """

    beta: float
    """Above 0; a larger value keeps the model closer to the reference."""
    label_smoothing: float = 0.0
    """Assumed share of swapped pairs, below 0.5 (conservative DPO, Mitchell 2023)."""
    sequences_each: int = 2
    needs_reference: bool = True
    kind: ClassVar[str] = "dpo"
    takes_pairs: ClassVar[bool] = True

    @classmethod
    def from_config(cls, config: Config, **fields: Any) -> Objective:
        """Build the objective, or raise a ProblemError with exit code 2 if a microbatch contains half a pair."""
        settings, size = config.objective, config.batch.microbatch_size
        if size % 2:
            what, at = f"batch.microbatch_size is {size}, and a pair is two sequences.", "/batch/microbatch_size"
            fix = f"Set batch.microbatch_size to {size + 1}" + (f" or {size - 1}." if size > 1 else ".")
            raise ProblemError([problem_of("TP077", file=config.name, pointer=at, what=what, next=fix)], exit_code=2)
        return super().from_config(config, beta=settings.beta, label_smoothing=settings.label_smoothing, **fields)

    def manifest_entry(self) -> dict[str, Any]:
        """Return kind, beta and label smoothing."""
        return {"kind": self.kind, "beta": self.beta, "label_smoothing": self.label_smoothing}

    def encode(self, rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, **options: Any) -> EncodedData:
        """Tokenize pairs; also raises a ProblemError if both answers of a row have the same tokens."""
        data = super().encode(rows, tokenizer, **options)
        pairs = LazySequence(len(data.encoded) // 2, lambda at: (data.encoded[2 * at], data.encoded[2 * at + 1]))
        lines, problems = row_lines(len(rows), options["lines"]), []
        for chosen, rejected in pairs:
            if np.array_equal(chosen.token_ids, rejected.token_ids):
                what = f"Both answers of row {chosen.row} have the same {len(chosen)} tokens at {self.max_length}."
                then = "Raise data.max_length" if chosen.truncated else "Use a tokenizer that distinguishes them"
                then, line = f"{then}, or correct or remove the row.", lines[chosen.row]
                where: dict[str, Any] = {"file": options["file"], "line": line, "pointer": "/rejected"}
                problems.append(problem_of("TP028", what=what, next=then, **where))
        if problems:
            raise ProblemError(list(truncate_problems(problems)), exit_code=2)
        sides = data.lengths.reshape(-1, 2)
        return replace(data, encoded=pairs, lengths=sides.sum(axis=1), widths=sides.max(axis=1))

    def collate(self, sequences: Sequence[Sequence[Pair]], length: int | None = None) -> HostBatch:
        """Return `tokens` and `loss_mask`, `[2·pairs length]`: each chosen answer, then the rejected one."""
        tokens, loss_mask, _ = collate([[row] for [pair] in sequences for row in pair], length or self.max_length)
        return {"tokens": tokens, "loss_mask": loss_mask}

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the summed loss of the pairs, their number, and their rewards: β times the log-ratios."""
        assert reference is not None, "needs_reference is true"
        before = jax.lax.stop_gradient(self.answer_log_probs(reference, batch, None))
        rewards = self.beta * (self.answer_log_probs(model, batch, key) - before)
        losses = preference_losses(rewards, self.label_smoothing)
        sums = reward_sums(jax.lax.stop_gradient(rewards))
        return LossSums(loss=jnp.sum(losses), weight=jnp.float32(len(losses)), named=sums)

    def answer_log_probs(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None
    ) -> Float[Array, "pairs 2"]:
        """Return the log-probability of each answer, the sum over its tokens, in nats."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        hidden = model.hidden(batch["tokens"], dropout_key=key)

        def per_sequence(*chunk: Array) -> Array:
            return jnp.sum(cross_entropies(*chunk), axis=1)

        found = sum_chunks(per_sequence, hidden, targets, mask, model.logits, self.chunk_positions)
        return (-found).reshape(-1, 2)


def preference_losses(rewards: Float[Array, "pairs 2"], label_smoothing: float) -> Float[Array, " pairs"]:
    """Return `-(1 - ε) · log σ(m) - ε · log σ(-m)` of each pair, with m the chosen minus the rejected reward.

    For the rewards 0.5 and -0.5 without smoothing it is -log σ(1) = 0.3133.
    """
    margin = rewards[:, 0] - rewards[:, 1]
    right, wrong = jax.nn.log_sigmoid(margin), jax.nn.log_sigmoid(-margin)
    return -(1 - label_smoothing) * right - label_smoothing * wrong


def reward_sums(rewards: Float[Array, "pairs 2"]) -> dict[str, Float[Array, ""]]:
    """Return sums over pairs: both rewards, their margin, and the number of pairs with a positive margin."""
    chosen, rejected = rewards[:, 0], rewards[:, 1]
    return {
        "reward_chosen": jnp.sum(chosen),
        "reward_rejected": jnp.sum(rejected),
        "reward_margin": jnp.sum(chosen - rejected),
        "reward_accuracy": jnp.sum(chosen > rejected, dtype=jnp.float32),
    }
