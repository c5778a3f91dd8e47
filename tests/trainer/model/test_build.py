"""Random parameters, their names and shapes, and the hash over them."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from tiny_models import GEMMA, GPT2, random_model

from trainer.model.decoder import abstract, bind, build, flatten, parameter_count, params_sha256
from trainer.model.families import spec_from_config

FLOAT32 = {"params_dtype": jnp.float32, "compute_dtype": jnp.float32, "remat": "layer"}

GPT2_LAYER = {
    "attention.key.bias": (8,),
    "attention.key.kernel": (8, 8),
    "attention.out.bias": (8,),
    "attention.out.kernel": (8, 8),
    "attention.query.bias": (8,),
    "attention.query.kernel": (8, 8),
    "attention.value.bias": (8,),
    "attention.value.kernel": (8, 8),
    "attention_norm.bias": (8,),
    "attention_norm.scale": (8,),
    "mlp.down.bias": (8,),
    "mlp.down.kernel": (12, 8),
    "mlp.up.bias": (12,),
    "mlp.up.kernel": (8, 12),
    "mlp_norm.bias": (8,),
    "mlp_norm.scale": (8,),
}

GEMMA_LAYER = {
    "attention.key.kernel": (8, 12),
    "attention.out.kernel": (24, 8),
    "attention.query.kernel": (8, 24),
    "attention.value.kernel": (8, 12),
    "attention_norm.scale": (8,),
    "mlp.down.kernel": (12, 8),
    "mlp.gate.kernel": (8, 12),
    "mlp.up.kernel": (8, 12),
    "mlp_norm.scale": (8,),
}

TREES = {
    "gpt2": (
        GPT2,
        GPT2_LAYER,
        {"final_norm.bias": (8,), "final_norm.scale": (8,), "positions.table": (64, 8), "tokens.table": (23, 8)},
    ),
    "gemma": (GEMMA, GEMMA_LAYER, {"final_norm.scale": (8,), "tokens.table": (23, 8)}),
}


@pytest.mark.parametrize("family", TREES)
def test_the_whole_tree_of_parameters(family):
    config, layer, rest = TREES[family]
    expected = rest | {f"layers.{index}.{name}": shape for index in range(2) for name, shape in layer.items()}
    _, params = flatten(build(spec_from_config(config), key=jax.random.key(0), **FLOAT32))
    assert {name: value.shape for name, value in params.items()} == expected
    assert list(params) == sorted(params)
    assert parameter_count(params) == sum(int(np.prod(shape)) for shape in expected.values())


def test_an_untied_head_is_a_parameter_of_its_own():
    _, params = flatten(
        build(spec_from_config({**GEMMA, "tie_word_embeddings": False}), key=jax.random.key(0), **FLOAT32)
    )
    assert params["head.table"].shape == (23, 8)
    assert not np.array_equal(params["head.table"], params["tokens.table"])


def test_names_do_not_mix_up_ten_layers():
    spec = spec_from_config({**GPT2, "n_layer": 11})
    graphdef, params = random_model(spec)
    again_graphdef, again = flatten(bind(graphdef, params))
    assert graphdef == again_graphdef
    assert all(np.array_equal(params[name], again[name]) for name in params)
    decoder = bind(graphdef, params)
    np.testing.assert_array_equal(decoder.layers[10].mlp.up.kernel[...], params["layers.10.mlp.up.kernel"])


def test_abstract_is_the_same_model_without_arrays(spec):
    graphdef, params = flatten(build(spec, key=jax.random.key(0), **FLOAT32))
    abstract_graphdef, shapes = flatten(abstract(spec, **FLOAT32))
    assert abstract_graphdef == graphdef
    assert hash(abstract_graphdef) == hash(graphdef)
    assert {name: (value.shape, value.dtype) for name, value in shapes.items()} == {
        name: (value.shape, value.dtype) for name, value in params.items()
    }
    assert all(isinstance(value, jax.ShapeDtypeStruct) for value in shapes.values())


def test_one_seed_one_model(spec):
    hashes = [params_sha256(flatten(build(spec, key=jax.random.key(seed), **FLOAT32))[1]) for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_bfloat16_parameters_are_the_float32_ones_rounded(spec):
    _, exact = flatten(build(spec, key=jax.random.key(0), **FLOAT32))
    _, rounded = flatten(build(spec, key=jax.random.key(0), **{**FLOAT32, "params_dtype": jnp.bfloat16}))
    for name, value in rounded.items():
        assert value.dtype == jnp.bfloat16
        np.testing.assert_array_equal(value, exact[name].astype(jnp.bfloat16))


@pytest.mark.slow
def test_gpt2_starts_as_gpt2_does():
    spec = spec_from_config({**GPT2, "n_embd": 128, "n_inner": 512, "vocab_size": 512})
    _, params = flatten(build(spec, key=jax.random.key(0), **FLOAT32))
    for name, value in params.items():
        if name.endswith("bias"):
            assert not np.any(value), name
        elif name.endswith("norm.scale"):
            assert np.all(value == 1), name
        else:
            into_stream = name.endswith(("attention.out.kernel", "mlp.down.kernel"))
            # Two projections into the residual stream for each of 2 layers: 0.02 / 2.
            assert float(jnp.std(value)) == pytest.approx(0.01 if into_stream else 0.02, rel=0.03), name
            assert abs(float(jnp.mean(value))) < 0.001, name


def test_hash_is_what_it_says():
    params = {"b": jnp.array([[1, 2]], jnp.int32), "a": jnp.array(1.0, jnp.float32)}
    text = b'["a", [], "float32"]\n\x00\x00\x80\x3f["b", [1, 2], "int32"]\n\x01\x00\x00\x00\x02\x00\x00\x00'
    assert params_sha256(params) == hashlib.sha256(text).hexdigest()


def test_hash_sees_name_shape_dtype_and_bytes():
    value = jnp.array([1.0, 2.0], jnp.float32)
    versions = [
        {"a": value},
        {"b": value},
        {"a": value[None]},
        {"a": value.astype(jnp.bfloat16)},
        {"a": value.at[1].set(3.0)},
        {"a": value, "b": value},
    ]
    assert len({params_sha256(params) for params in versions}) == len(versions)


@pytest.mark.slow
def test_hash_and_random_numbers_are_those_of_one_device_on_eight():
    spec = spec_from_config({**GPT2, "vocab_size": 24, "n_layer": 1})
    mesh = jax.make_mesh((8,), ("shard",), axis_types=(jax.sharding.AxisType.Auto,))

    def draw() -> dict[str, jax.Array]:
        return flatten(build(spec, key=jax.random.key(3), **FLOAT32))[1]

    split = {
        name: NamedSharding(mesh, PartitionSpec("shard") if value.shape[0] % 8 == 0 else PartitionSpec())
        for name, value in flatten(abstract(spec, **FLOAT32))[1].items()
    }
    sharded = jax.jit(draw, out_shardings=split)()
    assert len(sharded["tokens.table"].addressable_shards) == 8
    assert sharded["tokens.table"].addressable_shards[0].data.shape == (3, 8)
    assert params_sha256(sharded) == params_sha256(jax.jit(draw)())
