"""The parts of a decoder against numbers that can be worked by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.model.attention import attend
from trainer.model.layers import Dtypes, Norm, apply_activation
from trainer.model.products import matmul, matmul_nt
from trainer.model.rope import apply_rotary, rotary_embedding
from trainer.model.spec import Rope

FLOAT32 = Dtypes(params=jnp.float32, compute=jnp.float32)


@pytest.mark.parametrize(
    ("kind", "scale", "expected"),
    [
        ("layer", 1.0, [-1.0, 1.0]),
        ("layer", 3.0, [-3.0, 3.0]),
        ("rms", 1.0, [0.8485281, 1.1313708]),
        ("rms_one_plus", 0.0, [0.8485281, 1.1313708]),
        ("rms_one_plus", 1.0, [1.6970563, 2.2627417]),
    ],
)
def test_norm_of_three_and_four(kind, scale, expected):
    norm = Norm(2, kind=kind, epsilon=1e-12, dtypes=FLOAT32)
    norm.scale[...] = jnp.full((2,), scale)
    np.testing.assert_allclose(norm(jnp.array([[[3.0, 4.0]]]))[0, 0], expected, rtol=1e-6)


def test_layer_norm_adds_its_bias_and_epsilon_counts():
    norm = Norm(2, kind="layer", epsilon=0.75, dtypes=FLOAT32)
    norm.bias[...] = jnp.array([10.0, 20.0])
    # The variance of 3 and 4 is 1/4; with epsilon it is 1, so nothing is scaled.
    np.testing.assert_allclose(norm(jnp.array([[[3.0, 4.0]]]))[0, 0], [9.5, 20.5], rtol=1e-6)


@pytest.mark.parametrize(("kind", "at_one"), [("gelu_tanh", 0.8411920), ("gelu", 0.8413447), ("silu", 0.7310586)])
def test_activations_at_one(kind, at_one):
    np.testing.assert_allclose(apply_activation(kind, jnp.array([1.0, 0.0])), [at_one, 0.0], rtol=1e-6)


def test_attention_weighs_values_by_softmax():
    query = jnp.array([1.0]).reshape(1, 1, 1, 1)
    keys = jnp.log(jnp.array([1.0, 3.0])).reshape(1, 1, 2, 1)
    values = jnp.array([0.0, 4.0]).reshape(1, 1, 2, 1)
    seen = attend(query, keys, values, jnp.ones((1, 1, 2), bool))
    np.testing.assert_allclose(seen.ravel(), [3.0], rtol=1e-6)
    first_only = attend(query, keys, values, jnp.array([[[True, False]]]))
    assert first_only.ravel().tolist() == [0.0]
    nothing = attend(query, keys, values, jnp.zeros((1, 1, 2), bool))
    assert nothing.ravel().tolist() == [2.0]


def test_query_heads_share_a_key_head_in_runs():
    values = jnp.array([10.0, 20.0]).reshape(1, 2, 1, 1)
    heads = attend(jnp.ones((1, 4, 1, 1)), jnp.ones((1, 2, 1, 1)), values, jnp.ones((1, 1, 1), bool))
    assert heads.ravel().tolist() == [10.0, 10.0, 20.0, 20.0]


def test_scores_are_divided_by_the_root_of_the_head():
    # q.k = 4 * ln 3 with a head of 4: a score of 2 ln 3, weights 1/10 and 9/10.
    query = jnp.ones((1, 1, 1, 4))
    keys = jnp.stack([jnp.zeros(4), jnp.full(4, jnp.log(3.0))]).reshape(1, 1, 2, 4)
    values = jnp.array([[0.0] * 4, [10.0] * 4]).reshape(1, 1, 2, 4)
    np.testing.assert_allclose(attend(query, keys, values, jnp.ones((1, 1, 2), bool)).ravel(), [9.0] * 4, rtol=1e-6)


def turned(x, position, theta):
    at = jnp.array([[position]])
    return apply_rotary(x, rotary_embedding(Rope(theta=theta), x.shape[-1], at, at + 1))


def test_rotation_turns_pairs_of_halves():
    x = jnp.array([1.0, 0.0, 0.0, 2.0]).reshape(1, 1, 1, 4)
    # Pair 0 is (1, 0), turned by 3; pair 1 is (0, 2), turned by 3 / sqrt(100).
    expected = [np.cos(3), -2 * np.sin(0.3), np.sin(3), 2 * np.cos(0.3)]
    np.testing.assert_allclose(turned(x, 3, 100.0).ravel(), expected, rtol=1e-6)


def test_rotated_products_depend_on_the_distance_only():
    query, key = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 8))
    near, far, other = (
        float(jnp.sum(turned(query, at, 10.0) * turned(key, seen, 10.0))) for at, seen in ((7, 3), (104, 100), (7, 4))
    )
    assert near == pytest.approx(far, rel=1e-4)
    assert near != pytest.approx(other, rel=0.05)


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

    def with_gradients(product):
        total = jax.value_and_grad(lambda *factors: jnp.sum(weights * product(*factors)), argnums=(0, 1))
        return total(first, second)

    with jax.default_matmul_precision("highest"):
        value, gradients = with_gradients(function)
        expected, wanted = with_gradients(partial(jnp.einsum, axes))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for found, known in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-5, atol=1e-6)


def test_narrow_factors_may_be_added_up_in_float32_and_keep_their_gradients_narrow():
    first, second = jnp.ones((2, 300), jnp.bfloat16), jnp.ones((3, 300), jnp.bfloat16) * 1.0078125
    found = matmul_nt(first, second, jnp.float32)
    assert (found.dtype, found[0, 0].item()) == (jnp.float32, 302.34375)
    gradients = jax.grad(lambda *factors: matmul_nt(*factors, jnp.float32).sum(), argnums=(0, 1))(first, second)
    assert [each.dtype for each in gradients] == [jnp.bfloat16, jnp.bfloat16]
