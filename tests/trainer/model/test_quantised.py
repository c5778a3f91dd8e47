"""Kernels in few bits: what bitsandbytes made of the same numbers, read as it is or made here."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES, FLOAT32
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from tiny_models import logits

from trainer.model.decoder import abstract, bind, build, flatten, projections
from trainer.model.layers import NF4, Lora, can_be_quantised, dequantise, quantise, quantise_on_device
from trainer.model.load import load_params
from trainer.model.peft import merge_loras
from trainer.model.source import resolve

TOKENS = np.array([[3, 1, 4, 1, 5, 9]], np.int32)


def structure(name, kind=None, **choices):
    source = resolve(str(CASES / name))
    shapes = projections(abstract(source.spec, **FLOAT32))
    chosen = {each: kind for each, linear in shapes.items() if kind and can_be_quantised(linear.shape, kind)}
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
