"""Adapters on projections: they start as nothing, add what the formula says, and drop inputs by key."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import GEMMA, logits

from trainer.model.decoder import abstract, build, flatten
from trainer.model.families import spec_from_config
from trainer.model.layers import Dropout, Lora, is_lora, lora_output

SPEC = spec_from_config(GEMMA)
CHOSEN = {"params_dtype": jnp.bfloat16, "compute_dtype": jnp.float32, "remat": "layer"}
QUERY = {"layers.1.attention.query": Lora(rank=2, scale=0.5, dropout=0.25)}
TOKENS = np.array([[3, 1, 4, 1, 5]], np.int32)


def drawn(**choices):
    return flatten(build(SPEC, key=jax.random.key(5), **CHOSEN | choices))


def test_adapters_are_float32_parameters_of_their_own_beside_an_unchanged_model():
    plain, params = drawn()[1], drawn(adapters=QUERY)[1]
    new = {name: (value.shape, str(value.dtype)) for name, value in params.items() if is_lora(name)}
    assert new == {
        "layers.1.attention.query.lora_a": ((8, 2), "float32"),
        "layers.1.attention.query.lora_b": ((2, 24), "float32"),
    }
    assert set(params) - set(new) == set(plain)
    assert all(np.array_equal(params[name], plain[name]) for name in plain)
    assert np.abs(params["layers.1.attention.query.lora_a"]).max() <= 8**-0.5
    _, shapes = flatten(abstract(SPEC, **CHOSEN, adapters=QUERY))
    assert {name: shape.shape for name, shape in shapes.items()} == {name: v.shape for name, v in params.items()}


@pytest.mark.slow
def test_each_adapter_is_drawn_from_the_key_of_its_place_among_all_names():
    """By the definition, one at a time; together they are drawn by one loop for each shape."""
    parts = ("attention.query", "attention.key", "attention.value", "mlp.gate", "mlp.down")
    names = [f"layers.{layer}.{part}" for layer in range(2) for part in parts]
    chosen = {name: Lora(rank=2 + name.endswith("gate"), scale=0.5) for name in names}
    params = jax.jit(lambda: drawn(adapters=chosen)[1])()
    for place, name in enumerate(sorted(names)):
        first, second = (params[f"{name}.lora_{each}"] for each in "ab")
        key, bound = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 1), place), first.shape[0] ** -0.5
        alone = jax.jit(lambda key: jax.random.uniform(key, first.shape, minval=-bound, maxval=bound))(key)  # noqa: B023
        np.testing.assert_array_equal(first, alone)
        assert second.shape[0] == first.shape[1]
        assert not np.any(second)


def test_an_adapter_changes_nothing_before_it_has_learned_and_equals_its_product_in_the_kernel_after():
    graphdef, params = drawn(params_dtype=jnp.float32, adapters=QUERY)
    plain, kernels = drawn(params_dtype=jnp.float32)
    np.testing.assert_array_equal(logits(graphdef, params, TOKENS), logits(plain, kernels, TOKENS))
    name = "layers.1.attention.query"
    params[f"{name}.lora_b"] = jax.random.normal(jax.random.key(6), (2, 24))
    product = 0.5 * params[f"{name}.lora_a"] @ params[f"{name}.lora_b"]
    merged = kernels | {f"{name}.kernel": kernels[f"{name}.kernel"] + product}
    np.testing.assert_allclose(logits(graphdef, params, TOKENS), logits(plain, merged, TOKENS), atol=1e-5)
    assert np.abs(product).max() > 0.05


def test_a_quarter_of_the_inputs_is_dropped_and_the_rest_is_larger():
    x, first, second = jnp.ones((400, 100)), jnp.ones((100, 1)), jnp.ones((1, 1))
    lora, dropout = Lora(rank=1, scale=1.0, dropout=0.25), Dropout(jax.random.key(0))
    sums = lora_output(x, first, second, lora, dropout)[:, 0]
    assert float(jnp.mean(sums)) == pytest.approx(100, rel=0.02)
    np.testing.assert_allclose(sums * 0.75, jnp.round(sums * 0.75), atol=1e-3)
    assert float(jnp.std(sums)) > 3
    other = lora_output(x, first, second, replace(lora, number=1), dropout)
    assert not np.array_equal(sums, other[:, 0])
    assert np.all(lora_output(x, first, second, lora, None) == 100)
