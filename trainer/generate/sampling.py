"""Drawing tokens: temperature, the likeliest k, the likeliest share p, and the log-probability of what was drawn.

A row's draw follows from its own key and the number of its new token alone, so a row draws the same whatever stands
beside it. Nothing sorts a vocabulary: a full sort of 151,936 logits takes a TPU 25 times as long as the 64 largest, and
p of all tokens is found by bisection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from trainer.config.tree import EvaluationConfig

HALVINGS = 24
"""Of the interval in which the smallest probability that is kept lies: to 6e-8 of the largest one."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are drawn; static, so each is a program of its own."""

    temperature: float = 1.0
    """Logits are divided by it; above 0."""
    top_k: int = 0
    """Only so many of the likeliest tokens are drawn from, 64 at most. 0: all."""
    top_p: float = 1.0
    """Only the likeliest tokens are drawn from, the fewest whose probabilities add up to it; above 0. 1: all."""


@dataclass(frozen=True, kw_only=True)
class DrawKeys:
    """What decides drawn continuations, besides the model."""

    keys: Key[Array, "prompts samples"]
    """Of each continuation of each prompt."""
    sampling: Sampling


def sampling_of(settings: EvaluationConfig) -> Sampling | None:
    """Return how an evaluation draws tokens; None: it takes the likeliest, since an item has one answer."""
    if settings.samples == 1:
        return None
    return Sampling(temperature=settings.temperature, top_k=settings.top_k, top_p=settings.top_p)


class DrawnTokens(NamedTuple):
    """One new token of each row, each `[batch]`."""

    tokens: Array
    log_probs: Array
    """In nats, of the softmax before anything is left out: the one that a loss computes from the same logits."""
    entropies: Array
    """Of that softmax, in nats."""


def draw_tokens(
    logits: Float[Array, "batch vocab"], keys: Key[Array, " batch"], number: Int[Array, ""], sampling: Sampling
) -> DrawnTokens:
    """Return a token for each row.

    Args:
        logits: of the next token, in float32.
        keys: of each row, the same for all of its tokens.
        number: of the new token, from 0.
        sampling: how.
    """
    scaled = logits / jnp.float32(sampling.temperature)
    noise = jax.vmap(lambda key: draw_noise(key, number, logits.shape[1]))(keys)
    # The largest of log-probability plus Gumbel noise is a draw from the softmax.
    tokens = jnp.argmax(kept_logits(scaled, sampling) + noise, axis=-1).astype(jnp.int32)
    normaliser = jax.nn.logsumexp(scaled, axis=-1)
    chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    return DrawnTokens(tokens, chosen - normaliser, entropies_of(scaled, normaliser))


def draw_noise(key: Key[Array, ""], number: Int[Array, ""], vocab: int) -> Float[Array, " vocab"]:
    """Return the Gumbel noise that draws the new token of a number, from 0, in the row of a key."""
    noise: Float[Array, " vocab"] = jax.random.gumbel(jax.random.fold_in(key, number), (vocab,))
    return noise


def entropies_of(logits: Float[Array, "batch vocab"], normaliser: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """Return the entropy of each row's softmax in nats: of `[0, 0]`, whose normaliser is ln 2, it is ln 2 = 0.693."""
    log_chances = logits - normaliser[:, None]
    return -jnp.sum(jnp.exp(log_chances) * log_chances, axis=-1)


def kept_logits(logits: Float[Array, "batch vocab"], sampling: Sampling) -> Float[Array, "batch vocab"]:
    """Return the logits with −inf where a token is not drawn from; p counts within the k."""
    least = jnp.full(logits.shape[:1], -jnp.inf, logits.dtype)
    if sampling.top_k:
        largest, _ = jax.lax.top_k(logits, min(sampling.top_k, logits.shape[-1]))
        least = largest[:, -1]
        if sampling.top_p < 1:
            least = least_within(largest, sampling.top_p)
    elif sampling.top_p < 1:
        least = least_by_halving(logits, sampling.top_p)
    return jnp.where(logits >= least[:, None], logits, -jnp.inf)


def least_within(largest: Float[Array, "batch k"], share: float) -> Float[Array, " batch"]:
    """Return the smallest of descending logits that is kept: the fewest whose probabilities add up to `share`.

    For the probabilities 0.5, 0.3, 0.2 and the share 0.6 it is the second: 0.5 alone does not suffice.
    """
    chances = jax.nn.softmax(largest, axis=-1)
    before = jnp.cumsum(chances, axis=-1) - chances
    count = jnp.sum(before < share, axis=-1)
    return jnp.take_along_axis(largest, count[:, None] - 1, axis=-1)[:, 0]


def least_by_halving(logits: Float[Array, "batch vocab"], share: float) -> Float[Array, " batch"]:
    """Return a logit at or above which the fewest tokens lie whose probabilities add up to `share`.

    The probability, as a share of the largest, is found by bisection between 0 and 1.
    """
    relative = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    needed = share * jnp.sum(relative, axis=-1)

    def halve(_: int | Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        enough = jnp.sum(jnp.where(relative >= middle[:, None], relative, 0.0), axis=-1) >= needed
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    zero = jnp.zeros_like(needed)
    low, _ = jax.lax.fori_loop(0, HALVINGS, halve, (zero, zero + 1))
    least: Array = jnp.min(jnp.where(relative >= low[:, None], logits, jnp.inf), axis=-1)
    return least
