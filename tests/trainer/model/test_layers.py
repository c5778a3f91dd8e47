"""The parts of a decoder against numbers that can be worked by hand; adapters, and kernels in few bits."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES, FLOAT32
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from tiny_models import GEMMA, logits

from trainer.model import layers
from trainer.model.attention import attend
from trainer.model.decoder import abstract, bind, build, flatten, projections
from trainer.model.families import spec_from_config
from trainer.model.load import load_params
from trainer.model.peft import merge_loras
from trainer.model.products import matmul_nt
from trainer.model.rope import apply_rotary, rotary_embedding
from trainer.model.source import resolve
from trainer.model.spec import Rope

DTYPES = layers.Dtypes(params=jnp.float32, compute=jnp.float32)


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
    norm = layers.Norm(2, kind=kind, epsilon=1e-12, dtypes=DTYPES)
    norm.scale[...] = jnp.full((2,), scale)
    np.testing.assert_allclose(norm(jnp.array([[[3.0, 4.0]]]))[0, 0], expected, rtol=1e-6)


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


def test_narrow_factors_may_be_added_up_in_float32_and_keep_their_gradients_narrow():
    first, second = jnp.ones((2, 300), jnp.bfloat16), jnp.ones((3, 300), jnp.bfloat16) * 1.0078125
    found = matmul_nt(first, second, jnp.float32)
    assert (found.dtype, found[0, 0].item()) == (jnp.float32, 302.34375)
    gradients = jax.grad(lambda *factors: matmul_nt(*factors, jnp.float32).sum(), argnums=(0, 1))(first, second)
    assert [each.dtype for each in gradients] == [jnp.bfloat16, jnp.bfloat16]


# Adapters

CHOSEN = {"params_dtype": jnp.bfloat16, "compute_dtype": jnp.float32, "remat": "layer"}


def drawn(**choices):
    return flatten(build(spec_from_config(GEMMA), key=jax.random.key(5), **CHOSEN | choices))[1]


@pytest.mark.slow
def test_each_adapter_is_drawn_from_the_key_of_its_place_among_all_names():
    """By the definition, one at a time; together they are drawn by one loop for each shape."""
    parts = ("attention.query", "attention.key", "attention.value", "mlp.gate", "mlp.down")
    names = [f"layers.{layer}.{part}" for layer in range(2) for part in parts]
    chosen = {name: layers.Lora(rank=2 + name.endswith("gate"), scale=0.5) for name in names}
    params, plain = jax.jit(lambda: (drawn(adapters=chosen), drawn()))()
    assert all(np.array_equal(params[name], plain[name]) for name in plain)
    for place, name in enumerate(sorted(names)):
        first, second = (params[f"{name}.lora_{each}"] for each in "ab")
        key, bound = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 1), place), first.shape[0] ** -0.5
        alone = jax.jit(lambda key: jax.random.uniform(key, first.shape, minval=-bound, maxval=bound))(key)  # noqa: B023
        np.testing.assert_array_equal(first, alone)
        assert (first.dtype, second.dtype) == (jnp.float32, jnp.float32)
        assert second.shape[0] == first.shape[1]
        assert not np.any(second)


def test_a_quarter_of_the_inputs_is_dropped_and_the_rest_is_larger():
    x, first, second = jnp.ones((400, 100)), jnp.ones((100, 1)), jnp.ones((1, 1))
    lora, dropout = layers.Lora(rank=1, scale=1.0, dropout=0.25), layers.Dropout(jax.random.key(0))
    sums = layers.lora_output(x, first, second, lora, dropout)[:, 0]
    assert float(jnp.mean(sums)) == pytest.approx(100, rel=0.02)
    np.testing.assert_allclose(sums * 0.75, jnp.round(sums * 0.75), atol=1e-3)
    assert float(jnp.std(sums)) > 3
    other = layers.lora_output(x, first, second, replace(lora, number=1), dropout)
    assert not np.array_equal(sums, other[:, 0])
    assert np.all(layers.lora_output(x, first, second, lora, None) == 100)


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
    codes, scales = layers.quantise(kernel, "nf4")
    assert (codes.dtype, scales.tolist()) == (jnp.uint4, [[0.5]])
    assert codes[:4, 0].astype(int).tolist() == [15, 2, 8, 7]
    np.testing.assert_allclose(layers.dequantise(codes, scales, jnp.float32)[:3, 0], layers.NF4[[15, 2, 8]] * 0.5)
    codes, scales = layers.quantise(jnp.array([[1.0, -4.0], [0.5, 2.0]]), "int8")
    assert (codes.tolist(), scales.tolist()) == ([[127, -127], [64, 64]], [[1.0, 4.0]])


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
    codes, scales = layers.quantise_on_device(load_params(source, wanted)[f"{name}.kernel"], "nf4")
    np.testing.assert_array_equal(codes.astype(jnp.int32), kept[f"{name}.codes"].astype(jnp.int32))
    np.testing.assert_allclose(scales, kept[f"{name}.scales"], rtol=1e-6)
    source, _, wanted = structure("qwen2-fp4", "nf4")
    assert {str(value.dtype) for value in load_params(source, wanted).values()} == {"uint4", "float32"}


def test_the_gradient_of_an_adapter_is_that_over_the_kernel_held_still():
    lora = {"layers.0.attention.query": layers.Lora(rank=2, scale=0.5)}
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


@pytest.mark.compiler("tpu")
@pytest.mark.compiles_anew  # JAX cannot read again what it kept for a device that is not here
@pytest.mark.parametrize(("kind", "codes"), [("nf4", jnp.uint4), ("int8", jnp.int8)])
def test_on_a_tpu_no_dense_copy_of_a_quantised_kernel_is_made(kind, codes):
    """Two codes packed into a byte would need 128 MiB here; looked up in 16 values they are fused into the product."""
    [chip] = topologies.get_topology_desc("v5e:1x1", "tpu", chips_per_host_bounds=(1, 1, 1)).devices
    inputs, outputs = 2048, 8192
    blocks = inputs // 64 if kind == "nf4" else 1
    shapes = ((512, inputs), jnp.bfloat16), ((inputs, outputs), codes), ((blocks, outputs), jnp.float32)
    place = SingleDeviceSharding(chip)
    arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for shape, dtype in shapes]
    product = jax.jit(lambda x, codes, scales: x @ layers.dequantise(codes, scales, jnp.bfloat16))
    memory = product.lower(*arguments).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**20
    bits = 4 if kind == "nf4" else 8
    stored = inputs * outputs * bits // 8 + blocks * outputs * 4 + 512 * inputs * 2
    assert memory.argument_size_in_bytes == pytest.approx(stored, rel=0.01)
