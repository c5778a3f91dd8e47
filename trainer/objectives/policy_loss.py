"""Policy gradients with a clipped ratio: the losses of GRPO and its variants, computed from log-probabilities.

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

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trainer.objectives.objective import LossSums

LossType = Literal["dapo", "grpo", "dr_grpo", "gspo", "cispo"]


class TokenRatios(NamedTuple):
    """Ratios of the probabilities under the model and when sampled, and where they are clipped."""

    ratios: Float[Array, "batch seq"]
    """Above 0; with gspo, equal along a sequence."""
    low: Bool[Array, "batch seq"]
    """Below the range with a negative advantage: the token has no gradient."""
    high: Bool[Array, "batch seq"]
    """Above the range with a positive advantage; with cispo, above the cap with any advantage."""


@dataclass(frozen=True, kw_only=True)
class PolicyLoss:
    """Settings of a loss."""

    loss_type: LossType
    epsilon_low: float
    """Range of the ratio below 1, in [0, 1]; not used by cispo."""
    epsilon_high: float
    """Range of the ratio above 1, 0 or more; with cispo, the largest ratio itself, such as 5."""
    beta: float
    """Weight of the divergence from the reference in nats, 0 or more."""
    max_completion_tokens: int
    """Length of the longest completion, the divisor of dr_grpo."""

    def sums(
        self,
        log_probs: Float[Array, "batch seq"],
        old_log_probs: Float[Array, "batch seq"],
        mask: Bool[Array, "batch seq"],
        advantages: Float[Array, " batch"],
        reference_log_probs: Float[Array, "batch seq"] | None,
    ) -> LossSums:
        """Return the sums of completions; loss divided by weight is the loss of a step.

        For the log-probabilities above, one sequence, A = 1 and β = 0, dapo is −2.0333 of weight 2, grpo −1.0167 of
        weight 1, dr_grpo −2.0333 of weight `max_completion_tokens`. If the model itself sampled all sequences, the
        gradient is that of REINFORCE: r = 1, and nothing is clipped.

        Args:
            log_probs: Log-probability of each token under the model, in nats.
            old_log_probs: Log-probability of each token when it was sampled.
            mask: True at the tokens of completions. Values elsewhere have no effect, even NaN.
            advantages: Advantage of each sequence over its group.
            reference_log_probs: Log-probabilities under the model before training, if beta is above 0.

        Raises:
            ValueError: Beta is above 0 but there is no reference.
        """
        if self.beta > 0 and reference_log_probs is None:
            message = "beta is above 0: reference_log_probs is missing."
            raise ValueError(message)
        log_probs, old_log_probs = at_completions(log_probs, mask), at_completions(old_log_probs, mask)
        clipped = self.token_ratios(log_probs - old_log_probs, mask, advantages[:, None])
        losses = self.token_losses(log_probs, clipped.ratios, advantages[:, None])
        tokens = jnp.sum(mask, dtype=jnp.float32)
        means = {"clip_low_share": masked_sum(clipped.low, mask), "clip_high_share": masked_sum(clipped.high, mask)}
        if reference_log_probs is not None:
            divergences = k3_divergences(log_probs, at_completions(reference_log_probs, mask))
            means["kl"] = masked_sum(divergences, mask)
            if self.beta > 0:
                losses += self.beta * divergences * clipped.ratios
        return LossSums(
            loss=self.summed_losses(losses, mask),
            weight=self.weight(mask),
            named={},
            means={name: (jax.lax.stop_gradient(value), tokens) for name, value in means.items()},
            largest={"sampler_gap": jax.lax.stop_gradient(jnp.max(jnp.abs(log_probs - old_log_probs)))},
        )

    def token_ratios(
        self, log_ratios: Float[Array, "batch seq"], mask: Bool[Array, "batch seq"], advantages: Float[Array, "batch 1"]
    ) -> TokenRatios:
        """Return the ratios, and where they are clipped. Log-ratios are 0 where the mask is false."""
        if self.loss_type == "gspo":
            means = jnp.sum(log_ratios, axis=1) / lengths(mask)
            log_ratios = jnp.broadcast_to(means[:, None], mask.shape)
        ratios = jnp.exp(log_ratios)
        if self.loss_type == "cispo":
            return TokenRatios(ratios, low=jnp.zeros_like(mask), high=(ratios > self.epsilon_high) & (advantages != 0))
        low = (ratios < 1 - self.epsilon_low) & (advantages < 0)
        return TokenRatios(ratios, low=low, high=(ratios > 1 + self.epsilon_high) & (advantages > 0))

    def token_losses(
        self,
        log_probs: Float[Array, "batch seq"],
        ratios: Float[Array, "batch seq"],
        advantages: Float[Array, "batch 1"],
    ) -> Float[Array, "batch seq"]:
        """Return the loss of each token, without the divergence from the reference."""
        if self.loss_type == "cispo":
            return -jax.lax.stop_gradient(jnp.minimum(ratios, self.epsilon_high)) * advantages * log_probs
        clipped = jnp.clip(ratios, 1 - self.epsilon_low, 1 + self.epsilon_high)
        return -jnp.minimum(ratios * advantages, clipped * advantages)

    def summed_losses(self, losses: Float[Array, "batch seq"], mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
        """Return the sum over tokens, or the sum over sequences of their mean."""
        if self.loss_type not in ("grpo", "gspo"):
            return masked_sum(losses, mask)
        return jnp.sum(jnp.sum(at_completions(losses, mask), axis=1) / lengths(mask))

    def weight(self, mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
        """Return the divisor of the sum. An empty sequence counts in grpo, gspo and dr_grpo."""
        sequences = len(mask)
        by_type = {"grpo": sequences, "gspo": sequences, "dr_grpo": sequences * self.max_completion_tokens}
        return jnp.float32(by_type[self.loss_type]) if self.loss_type in by_type else jnp.sum(mask, dtype=jnp.float32)


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


def lengths(mask: Bool[Array, "batch seq"]) -> Float[Array, " batch"]:
    """Return the tokens of each completion, at least 1, so that the mean of an empty one is 0."""
    return jnp.maximum(jnp.sum(mask, axis=1, dtype=jnp.float32), 1)


def masked_sum(values: Array, mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
    """Return the sum of numbers or of a count where the mask is true, in float32."""
    return jnp.sum(at_completions(values.astype(jnp.float32), mask))
