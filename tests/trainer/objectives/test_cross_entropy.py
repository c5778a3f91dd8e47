"""The loss against a plain-NumPy twin and hand-worked cases; chunks and padding change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.objectives.cross_entropy import chunked_cross_entropy, next_token_targets, summed_cross_entropy


def by_hand(logits: np.ndarray, targets: np.ndarray, mask: np.ndarray) -> float:
    """The definition, one position at a time, in float64."""
    total = 0.0
    for row in range(logits.shape[0]):
        for position in range(logits.shape[1]):
            if mask[row, position]:
                scores = logits[row, position].astype(np.float64)
                total -= scores[targets[row, position]] - np.log(np.exp(scores).sum())
    return total


@pytest.fixture
def case():
    random = np.random.default_rng(0)
    hidden = jnp.asarray(random.normal(size=(3, 10, 6)), jnp.float32)
    table = jnp.asarray(random.normal(size=(11, 6)), jnp.float32)
    targets = jnp.asarray(random.integers(0, 11, (3, 10)), jnp.int32)
    mask = jnp.asarray(random.integers(0, 2, (3, 10)), jnp.bool_)
    return hidden, table, targets, mask


def test_targets_are_the_next_tokens():
    targets, mask = next_token_targets(jnp.asarray([[5, 6, 7]], jnp.int32), jnp.asarray([[False, True, True]]))
    assert targets.tolist() == [[6, 7, 0]]
    assert mask.tolist() == [[True, True, False]]


def test_two_equal_logits_cost_ln_2():
    loss = summed_cross_entropy(jnp.zeros((1, 1, 2)), jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.bool_))
    assert float(loss) == pytest.approx(np.log(2))


def test_the_sum_is_the_definition(case):
    hidden, table, targets, mask = case
    logits = hidden @ table.T
    expected = by_hand(np.asarray(logits), np.asarray(targets), np.asarray(mask))
    assert float(summed_cross_entropy(logits, targets, mask)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 3, 5, 9, 10, 64, None])
def test_chunks_change_neither_the_loss_nor_its_gradient(case, chunk: int | None):
    hidden, table, targets, mask = case

    def loss(hidden, table, size):
        return chunked_cross_entropy(hidden, targets, mask, lambda h: h @ table.T, chunk_positions=size)

    whole, whole_gradient = jax.value_and_grad(loss, argnums=(0, 1))(hidden, table, None)
    value, gradient = jax.value_and_grad(loss, argnums=(0, 1))(hidden, table, chunk)
    assert float(value) == pytest.approx(float(whole), rel=1e-6)
    for ours, expected in zip(gradient, whole_gradient, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_no_array_of_the_chunked_loss_holds_every_logit(case):
    hidden, table, targets, mask = case

    def loss(hidden, table):
        return chunked_cross_entropy(hidden, targets, mask, lambda h: h @ table.T, chunk_positions=2)

    text = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(hidden, table))
    assert "f32[3,2,11]" in text
    assert "f32[3,10,11]" not in text
    assert "f32[5,3,2,11]" not in text
