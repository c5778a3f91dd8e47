"""The parts of a decoder against numbers that can be worked by hand; adapters, and kernels in few bits."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES, FLOAT32
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from tiny_models import GEMMA, logits

from trainer.model.attention import attend
from trainer.model.decoder import abstract, bind, build, flatten, projections
from trainer.model.families import spec_from_config
from trainer.model.layers import (
    NF4,
    Dropout,
    Dtypes,
    Lora,
    Norm,
    apply_activation,
    dequantise,
    is_lora,
    lora_output,
    quantise,
    quantise_on_device,
)
from trainer.model.load import load_params
from trainer.model.peft import merge_loras
from trainer.model.products import matmul, matmul_nt
from trainer.model.rope import apply_rotary, rotary_embedding
from trainer.model.source import resolve
from trainer.model.spec import Rope

DTYPES = Dtypes(params=jnp.float32, compute=jnp.float32)


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
    norm = Norm(2, kind=kind, epsilon=1e-12, dtypes=DTYPES)
    norm.scale[...] = jnp.full((2,), scale)
    np.testing.assert_allclose(norm(jnp.array([[[3.0, 4.0]]]))[0, 0], expected, rtol=1e-6)


def test_layer_norm_adds_its_bias_and_epsilon_counts():
    norm = Norm(2, kind="layer", epsilon=0.75, dtypes=DTYPES)
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


# Adapters

SPEC = spec_from_config(GEMMA)
CHOSEN = {"params_dtype": jnp.bfloat16, "compute_dtype": jnp.float32, "remat": "layer"}
QUERY = {"layers.1.attention.query": Lora(rank=2, scale=0.5, dropout=0.25)}
PROMPT = np.array([[3, 1, 4, 1, 5]], np.int32)


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
    np.testing.assert_array_equal(logits(graphdef, params, PROMPT), logits(plain, kernels, PROMPT))
    name = "layers.1.attention.query"
    params[f"{name}.lora_b"] = jax.random.normal(jax.random.key(6), (2, 24))
    product = 0.5 * params[f"{name}.lora_a"] @ params[f"{name}.lora_b"]
    merged = kernels | {f"{name}.kernel": kernels[f"{name}.kernel"] + product}
    np.testing.assert_allclose(logits(graphdef, params, PROMPT), logits(plain, merged, PROMPT), atol=1e-5)
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


# Kernels in few bits: what bitsandbytes made of the same numbers, read as it is or made here

TOKENS = np.array([[3, 1, 4, 1, 5, 9]], np.int32)


def structure(name, kind=None, **choices):
    source = resolve(str(CASES / name))
    shapes = projections(abstract(source.spec, **FLOAT32))
    block = 64 if kind == "nf4" else 1
    chosen = {each: kind for each, linear in shapes.items() if kind and linear.shape[0] % block == 0}
    return source, *flatten(abstract(source.spec, **FLOAT32, quantised=chosen, **choices))


def test_codes_and_magnitudes_of_a_block_by_hand():
    kernel = jnp.zeros((64, 1)).at[:3, 0].set(jnp.array([0.5, -0.25, 0.04]))
    codes, scales = quantise(kernel, "nf4")
    assert (codes.dtype, scales.tolist()) == (jnp.uint4, [[0.5]])
    assert codes[:4, 0].astype(int).tolist() == [15, 2, 8, 7]
    np.testing.assert_allclose(dequantise(codes, scales, jnp.float32)[:3, 0], NF4[[15, 2, 8]] * 0.5)
    codes, scales = quantise(jnp.array([[1.0, -4.0], [0.5, 2.0]]), "int8")
    assert (codes.tolist(), scales.tolist()) == ([[127, -127], [64, 64]], [[1.0, 4.0]])


def test_no_number_is_further_from_its_code_than_half_the_gap():
    kernel = jax.random.normal(jax.random.key(0), (256, 40))
    codes, scales = quantise_on_device(kernel, "nf4")
    error = jnp.abs(dequantise(codes, scales, jnp.float32) - kernel).reshape(4, 64, 40)
    widest = np.diff(NF4).max() / 2
    assert bool(jnp.all(error <= widest * scales[:, None, :] + 1e-6))
    assert float(jnp.mean(error)) == pytest.approx(0.0735, abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "count"), [("llama-nf4", "nf4", 12), ("qwen3-int8", "int8", 14)])
def test_weights_of_bitsandbytes_keep_their_codes_and_compute_the_same(name, kind, count):
    source, plain, wanted = structure(name)
    params = load_params(source, wanted)
    _, graphdef, shapes = structure(name, kind)
    kept = load_params(source, shapes)
    assert sum(each.endswith(".codes") for each in kept) == count
    np.testing.assert_allclose(logits(graphdef, kept, TOKENS), logits(plain, params, TOKENS), atol=2e-5)
    for each, value in merge_loras(kept, {}).items():
        np.testing.assert_allclose(value, params[each], atol=1e-6, err_msg=each)


def test_dense_weights_are_quantised_while_they_are_read():
    source, _, wanted = structure("llama-nf4")
    kept = load_params(source, structure("llama-nf4", "nf4")[2])
    name = "layers.0.mlp.up"
    codes, scales = quantise_on_device(load_params(source, wanted)[f"{name}.kernel"], "nf4")
    np.testing.assert_array_equal(codes.astype(jnp.int32), kept[f"{name}.codes"].astype(jnp.int32))
    np.testing.assert_allclose(scales, kept[f"{name}.scales"], rtol=1e-6)
    source, _, wanted = structure("qwen2-fp4", "nf4")
    assert {str(value.dtype) for value in load_params(source, wanted).values()} == {"uint4", "float32"}


def test_the_gradient_of_an_adapter_is_that_over_the_kernel_held_still():
    lora = {"layers.0.attention.query": Lora(rank=2, scale=0.5)}
    source, graphdef, wanted = structure("llama-nf4", "nf4", adapters=lora)
    kept = load_params(source, {name: each for name, each in wanted.items() if ".lora_" not in name})
    drawn = flatten(build(source.spec, key=jax.random.key(1), **FLOAT32, adapters=lora))[1]
    own = {name: value + 0.1 for name, value in drawn.items() if ".lora_" in name}
    _, plain, _ = structure("llama-nf4", adapters=lora)

    def loss(own, structure, frozen):
        decoder = bind(structure, {**frozen, **own})
        return jnp.mean(jnp.square(decoder.logits(decoder.hidden(jnp.asarray(TOKENS)))))

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    first, second = gradient(own, graphdef, kept), gradient(own, plain, merge_loras(kept, {}))
    for name in own:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-4, atol=1e-6)
    whole = merge_loras({**kept, **own}, lora)
    assert sorted(whole) == sorted(structure("llama-nf4")[2])


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """JAX cannot read again what it kept of a program for a device that is not here, so it keeps nothing."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    yield
    jax.config.update(name, before)


@pytest.mark.compiler("tpu")
@pytest.mark.parametrize(("kind", "codes"), [("nf4", jnp.uint4), ("int8", jnp.int8)])
def test_on_a_tpu_no_dense_copy_of_a_quantised_kernel_is_made(kind, codes, nothing_kept):
    """Two codes packed into a byte would need 128 MiB here; looked up in 16 values they are fused into the product."""
    [chip] = topologies.get_topology_desc("v5e:1x1", "tpu", chips_per_host_bounds=(1, 1, 1)).devices
    inputs, outputs = 2048, 8192
    blocks = inputs // 64 if kind == "nf4" else 1
    shapes = ((512, inputs), jnp.bfloat16), ((inputs, outputs), codes), ((blocks, outputs), jnp.float32)
    place = SingleDeviceSharding(chip)
    arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for shape, dtype in shapes]
    product = jax.jit(lambda x, codes, scales: x @ dequantise(codes, scales, jnp.bfloat16))
    memory = product.lower(*arguments).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**20
    bits = 4 if kind == "nf4" else 8
    stored = inputs * outputs * bits // 8 + blocks * outputs * 4 + 512 * inputs * 2
    assert memory.argument_size_in_bytes == pytest.approx(stored, rel=0.01)
