"""Products with their gradients written out, against those that JAX derives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.model.products import matmul, matmul_nt

FORMS = {
    "product": (matmul, "...ik,...kj->...ij", (3, 5), (5, 4)),
    "with rows": (matmul_nt, "...ik,...jk->...ij", (3, 5), (4, 5)),
}


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_those_of_einsum(form: str, batch: tuple[int, ...]):
    function, axes, of_first, of_second = FORMS[form]
    random = np.random.default_rng(0)
    first, second, weights = (
        jnp.asarray(random.standard_normal((*batch, *shape)), jnp.float32) for shape in (of_first, of_second, (3, 4))
    )

    def ours(first: jax.Array, second: jax.Array) -> jax.Array:
        return jnp.sum(weights * function(first, second))

    def theirs(first: jax.Array, second: jax.Array) -> jax.Array:
        return jnp.sum(weights * jnp.einsum(axes, first, second))

    with jax.default_matmul_precision("highest"):
        value, gradients = jax.value_and_grad(ours, argnums=(0, 1))(first, second)
        expected, wanted = jax.value_and_grad(theirs, argnums=(0, 1))(first, second)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for found, known in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-5, atol=1e-6)


def test_the_worked_examples():
    assert matmul(jnp.asarray([[1.0, 2.0]]), jnp.asarray([[3.0], [4.0]])).tolist() == [[11.0]]
    assert matmul_nt(jnp.asarray([[1.0, 2.0]]), jnp.asarray([[3.0, 4.0]])).tolist() == [[11.0]]


def test_narrow_factors_may_be_added_up_in_float32_and_keep_their_gradients_narrow():
    first, second = jnp.ones((2, 300), jnp.bfloat16), jnp.ones((3, 300), jnp.bfloat16) * 1.0078125

    def total(first: jax.Array, second: jax.Array) -> jax.Array:
        return jnp.sum(matmul_nt(first, second, jnp.float32))

    found = matmul_nt(first, second, jnp.float32)
    assert (found.dtype, found[0, 0].item()) == (jnp.float32, 302.34375)
    gradients = jax.grad(total, argnums=(0, 1))(first, second)
    assert [each.dtype for each in gradients] == [jnp.bfloat16, jnp.bfloat16]
