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
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trainer.objectives.objective import LossSums

LossType = Literal["dapo", "grpo", "dr_grpo", "gspo", "cispo"]


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
        """Return the sums of a microbatch; the loss of a step is loss / weight.

        For the log-probabilities above, one sequence, A = 1 and β = 0, dapo is −2.0333 of weight 2, grpo −1.0167 of
        weight 1, dr_grpo −2.0333 of weight `max_completion_tokens`. If the model itself sampled all sequences, the
        gradient is that of REINFORCE: r = 1, and nothing is clipped.

        Log-probabilities are in nats, `old_log_probs` those of sampling and `reference_log_probs` those of the model
        before training, which are required if beta is above 0. Values outside the mask have no effect, even NaN.

        Raises:
            ValueError: Beta is above 0 but the reference is missing.
        """
        if self.beta > 0 and reference_log_probs is None:
            message = "beta is above 0: reference_log_probs is missing."
            raise ValueError(message)
        log_probs, old_log_probs = at_completions(log_probs, mask), at_completions(old_log_probs, mask)
        advantages = advantages[:, None]
        tokens, log_ratios = jnp.sum(mask, dtype=jnp.float32), log_probs - old_log_probs
        # At least 1, so that the mean over an empty completion is 0.
        lengths = jnp.maximum(jnp.sum(mask, axis=1, dtype=jnp.float32), 1)
        if self.loss_type == "gspo":
            log_ratios = jnp.broadcast_to((jnp.sum(log_ratios, axis=1) / lengths)[:, None], mask.shape)
        ratios = jnp.exp(log_ratios)
        if self.loss_type == "cispo":
            low, high = jnp.zeros_like(mask), (ratios > self.epsilon_high) & (advantages != 0)
            losses = -jax.lax.stop_gradient(jnp.minimum(ratios, self.epsilon_high)) * advantages * log_probs
        else:
            low = (ratios < 1 - self.epsilon_low) & (advantages < 0)
            high = (ratios > 1 + self.epsilon_high) & (advantages > 0)
            clipped = jnp.clip(ratios, 1 - self.epsilon_low, 1 + self.epsilon_high)
            losses = -jnp.minimum(ratios * advantages, clipped * advantages)
        means = {"clip_low_share": masked_sum(low, mask), "clip_high_share": masked_sum(high, mask)}
        if reference_log_probs is not None:
            divergences = k3_divergences(log_probs, at_completions(reference_log_probs, mask))
            means["kl"] = masked_sum(divergences, mask)
            if self.beta > 0:
                losses += self.beta * divergences * ratios
        if self.loss_type in ("grpo", "gspo"):
            loss = jnp.sum(jnp.sum(at_completions(losses, mask), axis=1) / lengths)
        else:
            loss = masked_sum(losses, mask)
        # An empty sequence counts in grpo, gspo and dr_grpo.
        sequences = jnp.float32(len(mask))
        weights = {"grpo": sequences, "gspo": sequences, "dr_grpo": sequences * self.max_completion_tokens}
        return LossSums(
            loss=loss,
            weight=weights.get(self.loss_type, tokens),
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
