"""Policy gradients with a clipped ratio: the losses of GRPO and its variants, of log-probabilities alone.

For a token with log-probability p under the model, q where it was drawn, and advantage A, the ratio is r = exp(p − q)
and the clipped loss −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A). The variants differ in the ratio and in what the sum
over tokens is divided by:

    grpo     DeepSeekMath, arXiv 2402.03300   tokens of a sequence, then sequences: long answers weigh less a token
    dr_grpo  arXiv 2503.20783                 sequences · max_completion_tokens, so that length plays no part
    dapo     arXiv 2503.14476                 tokens of the whole step
    gspo     arXiv 2507.18071                 as grpo; the ratio is the sequence's, exp of the mean of p − q
    cispo    arXiv 2506.13585                 as dapo; −sg(min(r, ε_high))·A·p, so that no token loses its gradient

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
    """How much likelier each token is under the model than where it was drawn, and where that is cut."""

    ratios: Float[Array, "batch seq"]
    """Above 0; those of gspo are equal along a sequence."""
    low: Bool[Array, "batch seq"]
    """Below the range and to fall further: the token has no gradient."""
    high: Bool[Array, "batch seq"]
    """Above the range and to rise further; of cispo above the cap, whatever the advantage is."""


@dataclass(frozen=True, kw_only=True)
class PolicyLoss:
    """The settings of a loss; the objective draws the completions and knows their advantages."""

    loss_type: LossType
    epsilon_low: float
    """The ratio's range below 1, in [0, 1]; of no effect on cispo."""
    epsilon_high: float
    """The ratio's range above 1, 0 or more; of cispo the largest ratio itself, such as 5."""
    beta: float
    """What a nat of divergence from the reference costs, 0 or more."""
    max_completion_tokens: int
    """The longest completion, by which dr_grpo divides."""

    def sums(
        self,
        log_probs: Float[Array, "batch seq"],
        old_log_probs: Float[Array, "batch seq"],
        mask: Bool[Array, "batch seq"],
        advantages: Float[Array, " batch"],
        reference_log_probs: Float[Array, "batch seq"] | None,
    ) -> LossSums:
        """Return the sums of completions, whose quotient of loss and weight is the loss of a step.

        For the log-probabilities above, one sequence, A = 1 and β = 0, dapo is −2.0333 of weight 2, grpo −1.0167 of
        weight 1, dr_grpo −2.0333 of weight `max_completion_tokens`. A step whose sequences were all drawn by the model
        itself has the gradient of REINFORCE: r = 1, and nothing is cut.

        Args:
            log_probs: of each token under the model, in nats.
            old_log_probs: of each token where it was drawn.
            mask: true at the tokens of completions. What stands elsewhere has no effect, were it not a number.
            advantages: of each sequence: how much better it is than its group.
            reference_log_probs: under the model as it was before training; needed where beta is above 0.

        Raises:
            ValueError: beta is above 0, and there is no reference.
        """
        if self.beta > 0 and reference_log_probs is None:
            message = "beta is above 0: give log-probabilities under the reference, too."
            raise ValueError(message)
        log_probs, old_log_probs = at_completions(log_probs, mask), at_completions(old_log_probs, mask)
        cut = self.token_ratios(log_probs - old_log_probs, mask, advantages[:, None])
        losses = self.token_losses(log_probs, cut.ratios, advantages[:, None])
        tokens = jnp.sum(mask, dtype=jnp.float32)
        means = {"clip_low_share": masked_sum(cut.low, mask), "clip_high_share": masked_sum(cut.high, mask)}
        if reference_log_probs is not None:
            divergences = k3_divergences(log_probs, at_completions(reference_log_probs, mask))
            means["kl"] = masked_sum(divergences, mask)
            if self.beta > 0:
                losses += self.beta * divergences * cut.ratios
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
        """Return the ratios, and where they are cut. Log-ratios are 0 where the mask is false."""
        if self.loss_type == "gspo":
            of_sequences = jnp.sum(log_ratios, axis=1) / lengths(mask)
            log_ratios = jnp.broadcast_to(of_sequences[:, None], mask.shape)
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
        """Return the loss of each token without the divergence from the reference."""
        if self.loss_type == "cispo":
            return -jax.lax.stop_gradient(jnp.minimum(ratios, self.epsilon_high)) * advantages * log_probs
        clipped = jnp.clip(ratios, 1 - self.epsilon_low, 1 + self.epsilon_high)
        return -jnp.minimum(ratios * advantages, clipped * advantages)

    def summed_losses(self, losses: Float[Array, "batch seq"], mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
        """Return the sum over tokens, or over sequences of the mean of their tokens."""
        if self.loss_type not in ("grpo", "gspo"):
            return masked_sum(losses, mask)
        return jnp.sum(jnp.sum(at_completions(losses, mask), axis=1) / lengths(mask))

    def weight(self, mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
        """Return what the sum is divided by. An empty sequence counts in grpo, gspo and dr_grpo."""
        sequences = len(mask)
        by_type = {"grpo": sequences, "gspo": sequences, "dr_grpo": sequences * self.max_completion_tokens}
        return jnp.float32(by_type[self.loss_type]) if self.loss_type in by_type else jnp.sum(mask, dtype=jnp.float32)


def k3_divergences(
    log_probs: Float[Array, "batch seq"], reference_log_probs: Float[Array, "batch seq"]
) -> Float[Array, "batch seq"]:
    """Return `e^d − d − 1` of each token, d being the reference's log-probability less the model's; 0 or more, in nats.

    Its mean over tokens drawn by the model is KL(model ‖ reference). Times the ratio its gradient is that of the
    divergence, too (arXiv 2512.02556), with the tokens before each as they were drawn; alone it is not.
    """
    difference = reference_log_probs - log_probs
    return jnp.exp(difference) - difference - 1


def at_completions(values: Float[Array, "batch seq"], mask: Bool[Array, "batch seq"]) -> Float[Array, "batch seq"]:
    """Return the values where the mask is true, else 0, with no gradient there."""
    return jnp.where(mask, values, jnp.float32(0))


def lengths(mask: Bool[Array, "batch seq"]) -> Float[Array, " batch"]:
    """Return the tokens of each completion, at least 1, so that the mean of an empty one is 0."""
    return jnp.maximum(jnp.sum(mask, axis=1, dtype=jnp.float32), 1)


def masked_sum(values: Array, mask: Bool[Array, "batch seq"]) -> Float[Array, ""]:
    """Return the sum of numbers or of a count where the mask is true, in float32."""
    return jnp.sum(at_completions(values.astype(jnp.float32), mask))
