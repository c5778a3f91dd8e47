"""Drawing tokens: frequencies of a known distribution, the kept set against a sort, entropy and log-probability."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.generate.sampling import Sampling, draw_tokens, mask_logits, top_p_threshold

CHANCES = np.array([0.5, 0.2, 0.15, 0.1, 0.05])


def drawn(sampling, count=20_000, chances=CHANCES):
    logits = jnp.broadcast_to(jnp.log(jnp.asarray(chances, jnp.float32)), (count, len(chances)))
    keys = jax.random.split(jax.random.key(0), count)
    return jax.jit(draw_tokens, static_argnames="sampling")(logits, keys, jnp.int32(3), sampling)


def farthest(frequencies, chances):
    """Return the largest distance in standard deviations."""
    deviation = np.sqrt(np.maximum(chances * (1 - chances), 1e-12) / 20_000)
    return float(np.max(np.abs(frequencies - chances) / deviation))


@pytest.mark.parametrize(
    ("sampling", "chances"),
    [
        (Sampling(), CHANCES),
        (Sampling(temperature=0.5), CHANCES**2 / np.sum(CHANCES**2)),
        (Sampling(top_k=2), np.array([0.5, 0.2, 0, 0, 0]) / 0.7),
        (Sampling(top_k=3, top_p=0.6), np.array([0.5, 0.2, 0, 0, 0]) / 0.7),
        (Sampling(top_p=0.8), np.array([0.5, 0.2, 0.15, 0, 0]) / 0.85),
    ],
)
def test_tokens_come_as_often_as_their_probability_states(sampling, chances):
    tokens = np.asarray(drawn(sampling).tokens)
    assert farthest(np.bincount(tokens, minlength=5) / len(tokens), chances) < 4.5


def test_log_probability_and_entropy_are_those_before_anything_is_left_out():
    found = drawn(Sampling(top_k=2, temperature=0.5), count=8)
    chances = CHANCES**2 / np.sum(CHANCES**2)
    np.testing.assert_allclose(found.log_probs, np.log(chances)[np.asarray(found.tokens)], atol=1e-6)
    np.testing.assert_allclose(found.entropies, -np.sum(chances * np.log(chances)), atol=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9, 0.999])
def test_the_bisection_keeps_what_a_sort_keeps(share):
    logits = jax.random.normal(jax.random.key(1), (7, 1000)) * 3
    chances = -np.sort(-np.asarray(jax.nn.softmax(logits, axis=-1)), axis=-1)
    wanted = np.sum(np.cumsum(chances, axis=-1) - chances < share, axis=-1)
    kept = np.sum(np.asarray(logits) >= np.asarray(top_p_threshold(logits, share))[:, None], axis=-1)
    # A sum in another order may fall on the other side of the share, by one token.
    assert np.max(np.abs(kept - wanted)) <= (1 if share > 0.99 else 0)


def test_a_small_share_keeps_the_likeliest_token_alone():
    kept = mask_logits(jnp.asarray([[0.0, 1.0, 3.0]]), Sampling(top_p=1e-6))
    np.testing.assert_array_equal(np.isfinite(kept), [[False, False, True]])
