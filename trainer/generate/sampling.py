"""Sample tokens with temperature, top-k and top-p.

A row's samples follow from its own key and the index of the new token, so they do not depend on other rows. Nothing
sorts the vocabulary: sorting 151,936 logits takes a TPU 25 times as long as finding the 64 largest, so top-p over all
tokens uses bisection.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from trainer.config.tree import EvaluationConfig

BISECTIONS = 24  # bisection steps for the top-p threshold, to 6e-8 of the largest probability


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters; static, so that each combination is a compiled program of its own."""

    temperature: float = 1.0  # divides the logits; above 0
    top_k: int = 0  # sample from this many of the likeliest tokens, at most 64; 0 for all
    top_p: float = 1.0  # sample from the fewest likeliest tokens whose probabilities add up to this; above 0, 1 for all


@dataclass(frozen=True, kw_only=True)
class DrawKeys:
    """Sampling parameters and keys of a set of prompts."""

    keys: Key[Array, "prompts samples"]
    sampling: Sampling


def evaluation_sampling(settings: EvaluationConfig) -> Sampling | None:
    """Return the sampling parameters of an evaluation, or None for greedy decoding, which is used for one sample."""
    if settings.samples == 1:
        return None
    return Sampling(temperature=settings.temperature, top_k=settings.top_k, top_p=settings.top_p)


def draw_tokens(
    logits: Float[Array, "batch vocab"], keys: Key[Array, " batch"], number: Int[Array, ""], sampling: Sampling
) -> tuple[Int[Array, " batch"], Float[Array, " batch"], Float[Array, " batch"]]:
    """Sample a token for each row from float32 logits (Gumbel-max trick).

    There is one key per row, the same for all of its tokens; `number` is the index of the new token, from 0. Return the
    tokens, and in nats their log-probabilities under the softmax over all tokens, as a loss computes them, and its
    entropies.
    """
    scaled = logits / jnp.float32(sampling.temperature)
    noise = jax.vmap(lambda key: gumbel_noise(key, number, logits.shape[1]))(keys)
    tokens = jnp.argmax(mask_logits(scaled, sampling) + noise, axis=-1).astype(jnp.int32)
    normaliser = jax.nn.logsumexp(scaled, axis=-1)
    chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    log_probs = scaled - normaliser[:, None]
    entropies = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
    return tokens, chosen - normaliser, entropies


def gumbel_noise(key: Key[Array, ""], number: Int[Array, ""], vocab: int) -> Float[Array, " vocab"]:
    """Return the noise for the new token with this index in the row with this key."""
    noise: Float[Array, " vocab"] = jax.random.gumbel(jax.random.fold_in(key, number), (vocab,))
    return noise


def mask_logits(logits: Float[Array, "batch vocab"], sampling: Sampling) -> Float[Array, "batch vocab"]:
    """Return the logits with −inf outside top-k and top-p; top-p is relative to the top-k tokens."""
    least = jnp.full(logits.shape[:1], -jnp.inf, logits.dtype)
    if sampling.top_k:
        largest, _ = jax.lax.top_k(logits, min(sampling.top_k, logits.shape[-1]))
        least = largest[:, -1]
        if sampling.top_p < 1:
            # For the probabilities 0.5, 0.3, 0.2 and top_p 0.6 two are kept: 0.5 alone does not suffice.
            probs = jax.nn.softmax(largest, axis=-1)
            count = jnp.sum(jnp.cumsum(probs, axis=-1) - probs < sampling.top_p, axis=-1)
            least = jnp.take_along_axis(largest, count[:, None] - 1, axis=-1)[:, 0]
    elif sampling.top_p < 1:
        least = top_p_threshold(logits, sampling.top_p)
    return jnp.where(logits >= least[:, None], logits, -jnp.inf)


def top_p_threshold(logits: Float[Array, "batch vocab"], share: float) -> Float[Array, " batch"]:
    """Return the smallest logit of the fewest likeliest tokens whose probabilities add up to `share`, by bisection."""
    relative = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    needed = share * jnp.sum(relative, axis=-1)

    def bisect(_: int | Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        enough = jnp.sum(jnp.where(relative >= middle[:, None], relative, 0.0), axis=-1) >= needed
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    zero = jnp.zeros_like(needed)
    low, _ = jax.lax.fori_loop(0, BISECTIONS, bisect, (zero, zero + 1))
    least: Array = jnp.min(jnp.where(relative >= low[:, None], logits, jnp.inf), axis=-1)
    return least
