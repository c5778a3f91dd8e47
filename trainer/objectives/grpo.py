"""Group Relative Policy Optimization (Shao et al. 2024, arXiv 2402.03300) and its variants.

`evidence.rewards` scores completions. `trainer/loop/rollouts.py` samples them with the parameters that learn and in the
program that evaluates, so sampler and trainer are one model.

For a token with log-probability p under the model, q when it was sampled, and advantage A, the ratio is r = exp(p − q)
and the clipped loss −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A). The variants differ in the ratio and in
the divisor of the sum over tokens:

    grpo     DeepSeekMath, arXiv 2402.03300   tokens of a sequence, then sequences: long answers weigh less a token
    dr_grpo  arXiv 2503.20783                 sequences · max_completion_tokens, so length has no effect
    dapo     arXiv 2503.14476                 tokens of the whole step
    gspo     arXiv 2507.18071                 as grpo; the ratio is the sequence's, exp of the mean of p − q
    cispo    arXiv 2506.13585                 as dapo; −sg(min(r, ε_high))·A·p, so every token keeps its gradient

By hand, for p = ln [0.5, 0.25] and q = ln [0.4, 0.3]: r = [1.25, 0.8333]; with ε 0.2 and A = +1 the losses are
[−1.2, −0.8333], with A = −1 [1.25, 0.8333], as clipping is one-sided; the ratio of gspo is 1.020621. Against
ln [0.45, 0.2] the estimate k3 of the divergence is [0.00536, 0.02314], and k3·r [0.00670, 0.01929].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from evidence.rewards import parse_terms
from schemas.problems import Problem, ProblemError, collect_problems, problem_of, truncate_problems
from trainer.config.tree import Config, ObjectiveConfig
from trainer.data.batches import HostBatch
from trainer.data.conversations import Tokenizer, render_each, render_question
from trainer.data.encode import EncodedData, EncodedRow, encode_prompt, require_end_token, row_lines
from trainer.data.files import StoredSequence
from trainer.generate.decode import pad_left, padded
from trainer.generate.sampling import Sampling
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import next_token_targets, token_log_probs
from trainer.objectives.objective import USED_BY, LossSums, Microbatch, Objective

EPSILON_HIGH = {"dapo": 0.28, "cispo": 5.0}
"""Default upper bound of the ratio by loss; 0.2 for the others. With cispo, it is the largest ratio itself."""


@dataclass(frozen=True, kw_only=True)
class GroupPolicy(Objective):
    """Policy gradient with advantages relative to the other completions of the same prompt."""

    settings: ObjectiveConfig
    kind: ClassVar[str] = "grpo"

    @classmethod
    def from_config(cls, config: Config, **fields: Any) -> Objective:
        """Build the objective.

        Raises `ProblemError` with exit code 2 if rewards are missing or invalid, or the run would end or save between
        updates on the same completions.
        """
        settings = config.objective
        problems: list[Problem] = []
        for group, key in (("limits", "steps"), ("checkpoint", "save_every_steps"), ("recording", "chain_every_steps")):
            steps = getattr(getattr(config, group), key) or 0
            if steps % settings.updates_per_rollout:
                what = f"{group}.{key} is {steps}, which is not a multiple of objective.updates_per_rollout, "
                what += f"{settings.updates_per_rollout}."
                problems.append(problem_of("TP914", file=config.name, pointer=f"/{group}/{key}", what=what))
        with collect_problems(problems):
            if not parse_terms(settings.rewards, file=config.name):
                what = "objective.kind is grpo, but objective.rewards is empty."
                problems.append(problem_of("TP915", file=config.name, pointer="/objective/rewards", what=what))
        if problems:
            raise ProblemError(problems, exit_code=2)
        return super().from_config(
            config,
            sequences_each=settings.group_size,
            updates_per_rollout=settings.updates_per_rollout,
            needs_reference=settings.kl_beta > 0,
            settings=settings,
            **fields,
        )

    @property
    def epsilon_high(self) -> float:
        """Upper bound of the ratio, above 1; with cispo the largest ratio itself."""
        high, usual = self.settings.epsilon_high, EPSILON_HIGH.get(self.settings.loss_type, 0.2)
        return usual if high is None else high

    @property
    def prompt_width(self) -> int:
        """Tokens to which prompts are padded."""
        return padded(self.max_length - self.settings.max_completion_tokens)

    @property
    def sampling(self) -> Sampling:
        """How completions are sampled."""
        return Sampling(temperature=self.settings.temperature, top_k=self.settings.top_k, top_p=self.settings.top_p)

    def manifest_entry(self) -> dict[str, Any]:
        """Return the settings in effect, with the resolved upper bound of the ratio."""
        keys = [setting.partition(".")[2] for setting, kinds in USED_BY.items() if kinds == (self.kind,)]
        values = {key: getattr(self.settings, key) for key in keys}
        return {"kind": self.kind, **values, "epsilon_high": self.epsilon_high}

    def encode(self, rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, **options: Any) -> EncodedData:
        """Tokenize the prompts of rows, to which completions are sampled; `encode_rows` describes the options.

        Raises `ProblemError` with exit code 2 if the tokenizer lacks an end token, its chat template refuses a row, or
        a prompt is empty or leaves too little room for a completion.
        """
        file, lines = options["file"], row_lines(len(rows), options["lines"])
        require_end_token(tokenizer, file)
        render = partial(render_question, tokenizer=tokenizer, template=self.template)
        examples = render_each(rows, render, file=file, lines=lines)
        ids = ((index, encode_prompt(one.prompt, tokenizer, templated=one.templated)) for index, one in examples)
        encoded = StoredSequence(
            EncodedRow(token_ids=np.asarray(prompt, np.int32), spans=(), truncated=False, row=index)
            for index, prompt in ids
        )
        room = min(self.max_length, options["max_positions"]) - self.settings.max_completion_tokens
        lengths, problems = np.array([len(row) for row in encoded], np.int64), list[Problem]()
        for number, length in enumerate(lengths.tolist()):
            if length == 0:
                what = f"The tokenizer finds no token in the prompt of row {number}."
                problems.append(problem_of("TP912", file=file, line=lines[number], what=what))
            elif length > room:
                what = f"The prompt of row {number} has {length} tokens; the completion leaves room for {max(room, 0)}."
                problems.append(problem_of("TP911", file=file, line=lines[number], what=what))
        if problems:
            raise ProblemError(list(truncate_problems(problems)), exit_code=2)
        nothing = dict.fromkeys(("supervised_tokens", "truncated_rows", "rows_without_answer"), 0)
        counts = {"rows": len(rows), "prompt_tokens": int(lengths.sum()), **nothing, "end_token_supervised": False}
        return EncodedData(encoded=encoded, lengths=lengths, widths=lengths, counts=counts, warnings=())

    def collate(self, sequences: Sequence[Sequence[EncodedRow]], length: int | None = None) -> HostBatch:
        """Return the prompts of a step: `prompts` `[prompts width]`, padded on the left, `lengths` and `rows`."""
        prompts = [row for [row] in sequences]
        tokens, lengths = pad_left([prompt.token_ids for prompt in prompts], self.prompt_width)
        return {"prompts": tokens, "lengths": lengths, "rows": np.array([prompt.row for prompt in prompts], np.int32)}

    def batch_shapes(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return shapes and types of a microbatch by name; `advantages` has one value for each sequence."""
        arrays = super().batch_shapes(sequences, length)
        log_probs = jax.ShapeDtypeStruct(arrays["tokens"].shape, jnp.float32)
        return arrays | {"old_log_probs": log_probs, "advantages": jax.ShapeDtypeStruct((sequences,), jnp.float32)}

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the sums of the completions, with log-probabilities at the temperature of sampling."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        nothing = jnp.zeros_like(batch["old_log_probs"][:, :1])
        old = jnp.concatenate([batch["old_log_probs"][:, 1:], nothing], axis=1)

        def log_probs(decoder: Decoder, dropout_key: Key[Array, ""] | None) -> Array:
            hidden = decoder.hidden(batch["tokens"], dropout_key=dropout_key)

            def scaled_logits(states: Array) -> Array:
                scaled: Array = decoder.logits(states) / jnp.float32(self.settings.temperature)
                return scaled

            return token_log_probs(hidden, targets, mask, scaled_logits, self.chunk_positions)

        before = None if reference is None else jax.lax.stop_gradient(log_probs(reference, None))
        return self.sums(log_probs(model, key), old, mask, batch["advantages"], before)

    def sums(
        self,
        log_probs: Float[Array, "batch seq"],
        old_log_probs: Float[Array, "batch seq"],
        mask: Bool[Array, "batch seq"],
        advantages: Float[Array, " batch"],
        reference_log_probs: Float[Array, "batch seq"] | None,
    ) -> LossSums:
        """Return the sums of a microbatch; the loss of a step is loss / weight.

        For the log-probabilities above, one sequence, A = 1 and β = 0, dapo is −2.0333 of weight 2, grpo −1.0167 of
        weight 1, dr_grpo −2.0333 of weight `max_completion_tokens`. If the model itself sampled all sequences, the
        gradient is that of REINFORCE: r = 1, and nothing is clipped.

        Log-probabilities are in nats, `old_log_probs` those of sampling and `reference_log_probs` those of the model
        before training, which are required (ValueError) if kl_beta is above 0. Values outside the mask have no effect,
        even NaN.
        """
        if self.settings.kl_beta > 0 and reference_log_probs is None:
            message = "kl_beta is above 0: reference_log_probs is missing."
            raise ValueError(message)
        log_probs, old_log_probs = at_completions(log_probs, mask), at_completions(old_log_probs, mask)
        advantages = advantages[:, None]
        tokens, log_ratios = jnp.sum(mask, dtype=jnp.float32), log_probs - old_log_probs
        # At least 1, so that the mean over an empty completion is 0.
        lengths = jnp.maximum(jnp.sum(mask, axis=1, dtype=jnp.float32), 1)
        if self.settings.loss_type == "gspo":
            log_ratios = jnp.broadcast_to((jnp.sum(log_ratios, axis=1) / lengths)[:, None], mask.shape)
        ratios = jnp.exp(log_ratios)
        if self.settings.loss_type == "cispo":
            low, high = jnp.zeros_like(mask), (ratios > self.epsilon_high) & (advantages != 0)
            losses = -jax.lax.stop_gradient(jnp.minimum(ratios, self.epsilon_high)) * advantages * log_probs
        else:
            low = (ratios < 1 - self.settings.epsilon_low) & (advantages < 0)
            high = (ratios > 1 + self.epsilon_high) & (advantages > 0)
            clipped = jnp.clip(ratios, 1 - self.settings.epsilon_low, 1 + self.epsilon_high)
            losses = -jnp.minimum(ratios * advantages, clipped * advantages)
        means = {"clip_low_share": masked_sum(low, mask), "clip_high_share": masked_sum(high, mask)}
        if reference_log_probs is not None:
            divergences = k3_divergences(log_probs, at_completions(reference_log_probs, mask))
            means["kl"] = masked_sum(divergences, mask)
            if self.settings.kl_beta > 0:
                losses += self.settings.kl_beta * divergences * ratios
        if self.settings.loss_type in ("grpo", "gspo"):
            loss = jnp.sum(jnp.sum(at_completions(losses, mask), axis=1) / lengths)
        else:
            loss = masked_sum(losses, mask)
        # An empty sequence counts in grpo, gspo and dr_grpo.
        sequences = jnp.float32(len(mask))
        weights = {"grpo": sequences, "gspo": sequences, "dr_grpo": sequences * self.settings.max_completion_tokens}
        return LossSums(
            loss=loss,
            weight=weights.get(self.settings.loss_type, tokens),
            named={},
            means={name: (jax.lax.stop_gradient(value), tokens) for name, value in means.items()},
            largest={"sampler_gap": jax.lax.stop_gradient(jnp.max(jnp.abs(log_probs - old_log_probs)))},
        )


def k3_divergences(
    log_probs: Float[Array, "batch seq"], reference_log_probs: Float[Array, "batch seq"]
) -> Float[Array, "batch seq"]:
    """Return `e^d − d − 1` of each token, with d the reference's minus the model's log-probability; 0 or more, in nats.

    Its mean over tokens sampled by the model is KL(model ‖ reference). Multiplied by the ratio, its gradient is that of
    the divergence given the sampled prefixes (arXiv 2512.02556).
    """
    difference = reference_log_probs - log_probs
    return jnp.exp(difference) - difference - 1


def at_completions(values: Float[Array, "batch seq"], mask: Bool[Array, "batch seq"]) -> Float[Array, "batch seq"]:
    """Return the values where the mask is true, else 0 without a gradient."""
    return jnp.where(mask, values, jnp.float32(0))


def masked_sum(values: Array, mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
    """Return the sum of numbers or of a count where the mask is true, in float32."""
    return jnp.sum(at_completions(values.astype(jnp.float32), mask))
