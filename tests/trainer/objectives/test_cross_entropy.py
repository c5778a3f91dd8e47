"""Cross-entropy against its definition and by hand; chunks change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.objectives.cross_entropy import next_token_targets, sum_chunks, summed_cross_entropy


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


def loss_in_chunks(case, size):
    _, _, targets, mask = case
    return lambda hidden, table: sum_chunks(
        summed_cross_entropy, hidden, targets, mask, lambda part: part @ table.T, size
    )


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 3, 5, 9, 10, 64])
def test_chunks_change_neither_the_loss_nor_its_gradient(case, chunk: int):
    (whole, expected), (value, found) = (
        jax.value_and_grad(loss_in_chunks(case, size), argnums=(0, 1))(*case[:2]) for size in (None, chunk)
    )
    assert float(value) == pytest.approx(float(whole), rel=1e-6)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_no_array_of_the_chunked_loss_holds_every_logit(case):
    text = str(jax.make_jaxpr(jax.grad(loss_in_chunks(case, 2), argnums=(0, 1)))(*case[:2]))
    assert "f32[3,2,11]" in text
    assert "f32[3,10,11]" not in text
    assert "f32[5,3,2,11]" not in text
