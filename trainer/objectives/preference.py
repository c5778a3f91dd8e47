"""Preference: of two answers to one prompt, the chosen one is to become likelier than the rejected one.

Direct Preference Optimization (DPO; Rafailov et al. 2023, arXiv 2305.18290): the model is compared with what it was
before training, the reference. Under LoRA that is the model with its adapters switched off; where every parameter
learns, the first parameters are kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.tree import Config
from trainer.data.encode import EncodedData, Tokenizer
from trainer.data.source import HostBatch
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import in_several_chunks, log_probabilities, next_token_targets
from trainer.objectives.objective import LossSums, Microbatch
from trainer.objectives.pairs import Pair, encode_pairs, laid_out_pairs
from trainer.objectives.unused import unused_by_pairs, unused_settings


@dataclass(frozen=True, kw_only=True)
class DirectPreference:
    """Mean over pairs of `−log σ(β · (log-ratio of the chosen answer − log-ratio of the rejected one))`, in nats.

    The log-ratio of an answer is its log-probability under the model less that under the reference (equation 7).
    """

    max_length: int
    """Tokens of the longest sequences, padding included; a pair is two."""
    chunk_positions: int | None
    """Positions of each sequence whose logits exist at one time. None: all."""
    beta: float
    """Above 0; larger keeps the model closer to the reference."""
    label_smoothing: float = 0.0
    """Share of pairs taken to be the wrong way round, below 0.5 (conservative DPO, Mitchell 2023)."""
    template: str | None = None
    """How plain prompts are written. None: as they stand in the rows."""
    kind: ClassVar[str] = "dpo"
    can_pack: ClassVar[bool] = False
    takes_pairs: ClassVar[bool] = True
    sequences_each: ClassVar[int] = 2
    updates_per_rollout: ClassVar[int] = 0
    needs_reference: ClassVar[bool] = True

    def manifest_entry(self) -> dict[str, Any]:
        """Return kind, beta and label smoothing."""
        return {"kind": self.kind, "beta": self.beta, "label_smoothing": self.label_smoothing}

    def encode(
        self,
        rows: Sequence[dict[str, Any]],
        tokenizer: Tokenizer,
        *,
        file: str,
        lines: Sequence[int],
        max_positions: int,
    ) -> EncodedData:
        """Return each row as two sequences that begin with the same prompt."""
        return encode_pairs(
            rows,
            tokenizer,
            max_length=self.max_length,
            file=file,
            lines=lines,
            max_positions=max_positions,
            template=self.template,
        )

    def collate(self, sequences: Sequence[Sequence[Pair]], length: int | None = None) -> HostBatch:
        """Return `tokens` and `loss_mask`, `[2·pairs length]`: each chosen answer and behind it the rejected one."""
        return laid_out_pairs(sequences, length or self.max_length)

    def described(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes of `tokens` and `loss_mask`."""
        shape = (sequences, length or self.max_length)
        return {"tokens": jax.ShapeDtypeStruct(shape, jnp.int32), "loss_mask": jax.ShapeDtypeStruct(shape, jnp.bool_)}

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the summed loss of the pairs, their number, and their rewards: β times the log-ratios."""
        assert reference is not None, "what needs a reference is given one"
        before = jax.lax.stop_gradient(self.answers(reference, batch, None))
        rewards = self.beta * (self.answers(model, batch, key) - before)
        losses = preference_losses(rewards, self.label_smoothing)
        return LossSums(
            loss=jnp.sum(losses), weight=jnp.float32(len(losses)), named=summed_rewards(jax.lax.stop_gradient(rewards))
        )

    def answers(self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None) -> Float[Array, "pairs 2"]:
        """Return the log-probability of each answer, the sum over its tokens, in nats."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        hidden = model.hidden(batch["tokens"], dropout_key=key)
        found = log_probabilities(hidden, targets, mask, model.logits, chunk_positions=self.chunk_positions)
        return found.reshape(-1, 2)

    @property
    def rematerialised_blocks(self) -> int:
        """The loops over chunks of the model and of its reference, where there are several."""
        return 2 * in_several_chunks(self.max_length, self.chunk_positions)


def preference_losses(rewards: Float[Array, "pairs 2"], label_smoothing: float) -> Float[Array, " pairs"]:
    """Return `−(1 − ε) · log σ(m) − ε · log σ(−m)` of each pair, m being the chosen reward less the rejected one.

    For the rewards 0.5 and −0.5 without smoothing it is −log σ(1) = 0.3133.
    """
    margin = rewards[:, 0] - rewards[:, 1]
    right, wrong = jax.nn.log_sigmoid(margin), jax.nn.log_sigmoid(-margin)
    return -(1 - label_smoothing) * right - label_smoothing * wrong


def summed_rewards(rewards: Float[Array, "pairs 2"]) -> dict[str, Float[Array, ""]]:
    """Return sums over pairs of what a row shows: both rewards, their margin, and whether the chosen one is larger."""
    chosen, rejected = rewards[:, 0], rewards[:, 1]
    return {
        "reward_chosen": jnp.sum(chosen),
        "reward_rejected": jnp.sum(rejected),
        "reward_margin": jnp.sum(chosen - rejected),
        "reward_accuracy": jnp.sum(chosen > rejected, dtype=jnp.float32),
    }


def dpo_of(config: Config) -> DirectPreference:
    """Return the objective as a configuration sets it; a chunk is some positions of every sequence, one at least.

    Raises:
        ProblemError: exit code 2; a microbatch holds half a pair, or a setting has no effect on pairs.
    """
    problems = [*unused_settings(config, ("beta", "label_smoothing")), *unused_by_pairs(config), *half_pairs(config)]
    if problems:
        raise ProblemError(problems, exit_code=2)
    chunk_tokens = config.memory.loss_chunk_tokens
    return DirectPreference(
        max_length=config.data.max_length,
        chunk_positions=None if chunk_tokens is None else max(1, chunk_tokens // config.batch.microbatch_size),
        beta=config.objective.beta,
        label_smoothing=config.objective.label_smoothing,
        template=config.data.template,
    )


def half_pairs(config: Config) -> list[Problem]:
    """Return the problem of a microbatch that holds half a pair."""
    size = config.batch.microbatch_size
    if size % 2 == 0:
        return []
    what = f"batch.microbatch_size is {size}, and a pair is two sequences."
    fix = f"Set batch.microbatch_size to {size + 1}" + (f" or {size - 1}." if size > 1 else ".")
    return [problem_of("TP077", file=config.name, pointer="/batch/microbatch_size", what=what, next=fix)]
