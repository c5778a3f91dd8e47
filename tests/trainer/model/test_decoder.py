"""Building a decoder, its parameters and their hash; packed texts; rematerialization; MLPs in chunks."""

import hashlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import FLOAT32
from tiny_models import GEMMA, GPT2, assert_alike, equal_layers, logits, loss_and_gradient, random_model, stack

from trainer.model.decoder import abstract, bind, build, flatten, params_sha256
from trainer.model.families import spec_from_config
from trainer.model.layers import Dropout, Lora
from trainer.model.spec import ModelSpec, Rope


def drawn(spec, seed=0, **choices):
    return flatten(build(spec, key=jax.random.key(seed), **FLOAT32 | choices))


def test_bfloat16_parameters_are_the_float32_ones_rounded(spec):
    _, exact = drawn(spec)
    _, rounded = drawn(spec, params_dtype=jnp.bfloat16)
    for name, value in rounded.items():
        assert value.dtype == jnp.bfloat16
        np.testing.assert_array_equal(value, exact[name].astype(jnp.bfloat16))


@pytest.mark.slow
def test_gpt2_starts_as_gpt2_does():
    _, params = drawn(spec_from_config(GPT2 | {"n_embd": 128, "n_inner": 512, "vocab_size": 512}))
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


PACKED = np.array([[3, 1, 4, 1, 5, 22, 0, 6, 6, 0, 0]], np.int32)
SEGMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0]], np.int32)


def assert_packed_as_alone(spec: ModelSpec, **choices) -> None:
    graphdef, params = random_model(replace(spec, blocks=tuple(replace(block, **choices) for block in spec.blocks)))
    decoder = bind(graphdef, params)
    packed = decoder.logits(decoder.hidden(jnp.asarray(PACKED), jnp.asarray(SEGMENTS)))
    for text in (slice(0, 5), slice(5, 9)):
        np.testing.assert_allclose(packed[:, text], logits(graphdef, params, PACKED[:, text]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 3])
def test_packed_texts_are_computed_as_if_alone(spec, window):
    assert_packed_as_alone(spec, window=window)


STRETCHED = {
    "dynamic": {"factor": 2.0},
    "longrope": {"attention_factor": 1.1, "short_factors": (1.0, 1.5, 2.0), "long_factors": (2.0, 3.0, 4.0)},
}


@pytest.mark.parametrize("kind", STRETCHED)
def test_positions_of_packed_texts_are_stretched_as_if_alone(kind):
    assert_packed_as_alone(spec_from_config(GEMMA), rope=Rope(kind=kind, positions=4, **STRETCHED[kind]))


@pytest.mark.parametrize("remat", ["none", "layer"])
def test_remat_keeps_no_scores_for_the_backward_pass(spec, remat):
    graphdef, params = random_model(spec, remat=remat)
    tokens = np.array([[3, 1, 4, 1, 5, 9, 2], [22, 0, 6, 6, 6, 7, 21]], np.int32)
    _, backward = jax.vjp(lambda params: jnp.mean(jnp.square(logits(graphdef, params, tokens))), params)
    kept = [leaf.shape for leaf in jax.tree.leaves(backward) if leaf.dtype == jnp.float32]
    scores = [shape for shape in kept if len(shape) >= 4 and shape[-2:] == (7, 7)]
    assert bool(scores) == (remat == "none")
    # Under remat: parameters, each layer's input, and what the last norm and the head keep.
    inside_mlp = [shape for shape in kept if shape == (2, 7, spec.mlp)]
    assert bool(inside_mlp) == (remat == "none")


# MLPs in chunks

TINY = spec_from_config(GEMMA)


@pytest.mark.slow
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("remat", ["none", "layer"])
def test_the_gradient_is_that_of_the_whole(spec, remat, stacked):
    graphdef, params = random_model(spec, remat=remat)
    chosen = {"remat": remat, "layer_groups": equal_layers(spec) if stacked else (), "mlp_chunk_tokens": 10}
    in_chunks, like = flatten(abstract(spec, **FLOAT32 | chosen))  # 5 of 12 positions
    assert_alike(loss_and_gradient(graphdef, params), loss_and_gradient(in_chunks, stack(params, like)))


def test_an_adapter_drops_other_inputs_in_each_chunk():
    adapters = {"layers.0.mlp.up": Lora(rank=2, scale=1.0, dropout=0.5)}
    chosen = FLOAT32 | {"adapters": adapters, "mlp_chunk_tokens": 4}
    graphdef, params = flatten(build(TINY, key=jax.random.key(0), **chosen))
    params["layers.0.mlp.up.lora_b"] = jnp.ones_like(params["layers.0.mlp.up.lora_b"])
    alike = jnp.broadcast_to(jnp.linspace(-1, 1, TINY.embed), (1, 8, TINY.embed))
    found = bind(graphdef, params).layers[0].mlp(alike, Dropout(jax.random.key(0)))
    assert not np.allclose(found[0, :4], found[0, 4:])


def test_a_recomputed_layer_computes_its_chunks_twice_and_not_a_third_time():
    one_layer = replace(TINY, blocks=TINY.blocks[:1])
    graphdef, params = flatten(abstract(one_layer, **FLOAT32 | {"remat": "layer"}, mlp_chunk_tokens=10))
    total = jax.grad(lambda params, tokens: bind(graphdef, params).hidden(tokens).sum())
    program = jax.jit(total).lower(params, jax.ShapeDtypeStruct((2, 12), jnp.int32)).compile().as_text()
    assert program.count(" while(") == 2  # the way there, and the way back, which computes a chunk again
