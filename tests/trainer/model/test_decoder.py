"""Building a decoder, its parameters and their hash; what changes nothing in the forward pass; MLPs in chunks."""

import hashlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import FLOAT32
from tiny_models import GEMMA, GPT2, equal_layers, logits, random_model, split_over_eight, stack

from trainer.loop.compilation import count_remat_blocks
from trainer.model.decoder import abstract, bind, build, flatten, params_sha256
from trainer.model.families import spec_from_config
from trainer.model.layers import Dropout, Lora, chunk_count, map_chunks
from trainer.model.spec import ModelSpec, Rope
from trainer.model.stacks import unstack_layers


def drawn(spec, seed=0, **choices):
    return flatten(build(spec, key=jax.random.key(seed), **FLOAT32 | choices))


def test_names_do_not_mix_up_ten_layers():
    spec = spec_from_config({**GPT2, "n_layer": 11})
    graphdef, params = random_model(spec)
    again_graphdef, again = flatten(bind(graphdef, params))
    assert graphdef == again_graphdef
    assert all(np.array_equal(params[name], again[name]) for name in params)
    decoder = bind(graphdef, params)
    np.testing.assert_array_equal(decoder.layers[10].mlp.up.kernel[...], params["layers.10.mlp.up.kernel"])


def test_one_seed_one_model(spec):
    hashes = [params_sha256(drawn(spec, seed)[1]) for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


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


@pytest.mark.slow
def test_hash_and_random_numbers_are_those_of_one_device_on_eight():
    spec = spec_from_config({**GPT2, "vocab_size": 24, "n_layer": 1})
    split = split_over_eight(flatten(abstract(spec, **FLOAT32))[1])
    sharded = jax.jit(lambda: drawn(spec, 3)[1], out_shardings=split)()
    assert len(sharded["tokens.table"].addressable_shards) == 8
    assert sharded["tokens.table"].addressable_shards[0].data.shape == (3, 8)
    assert params_sha256(sharded) == params_sha256(jax.jit(lambda: drawn(spec, 3)[1])())


# The forward pass

TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2], [22, 0, 6, 6, 6, 7, 21]], np.int32)


def test_a_token_does_not_see_those_after_it(spec):
    graphdef, params = random_model(spec)
    other_end = TOKENS.copy()
    other_end[:, 4:] = 11
    before, after = logits(graphdef, params, TOKENS), logits(graphdef, params, other_end)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert not np.allclose(before[:, 4:], after[:, 4:], atol=1e-3)


PACKED = np.array([[3, 1, 4, 1, 5, 22, 0, 6, 6, 0, 0]], np.int32)
SEGMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0]], np.int32)


def with_blocks(spec: ModelSpec, **choices) -> ModelSpec:
    return replace(spec, blocks=tuple(replace(block, **choices) for block in spec.blocks))


def assert_packed_as_alone(spec: ModelSpec) -> None:
    graphdef, params = random_model(spec)
    decoder = bind(graphdef, params)
    packed = decoder.logits(decoder.hidden(jnp.asarray(PACKED), jnp.asarray(SEGMENTS)))
    for text in (slice(0, 5), slice(5, 9)):
        np.testing.assert_allclose(packed[:, text], logits(graphdef, params, PACKED[:, text]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 3])
def test_packed_texts_are_computed_as_if_alone(spec, window):
    assert_packed_as_alone(with_blocks(spec, window=window))


@pytest.mark.parametrize(
    "rope",
    [
        Rope(kind="dynamic", factor=2.0, positions=4),
        Rope(
            kind="longrope",
            positions=4,
            attention_factor=1.1,
            short_factors=(1.0, 1.5, 2.0),
            long_factors=(2.0, 3.0, 4.0),
        ),
    ],
)
def test_positions_of_packed_texts_are_stretched_as_if_alone(rope):
    assert_packed_as_alone(with_blocks(spec_from_config(GEMMA), rope=rope))


@pytest.mark.slow
def test_bfloat16_is_used_inside_and_logits_are_float32(spec):
    graphdef, params = random_model(spec)
    exact = logits(graphdef, params, TOKENS)
    rough, _ = random_model(spec, compute_dtype=jnp.bfloat16)
    assert bind(rough, params).hidden(jnp.asarray(TOKENS)).dtype == jnp.bfloat16
    found = logits(rough, params, TOKENS)
    assert found.dtype == jnp.float32
    assert 1e-4 < np.abs(found - exact).max() < 0.2


def mean_square(graphdef, params, tokens):
    return jnp.mean(jnp.square(logits(graphdef, params, tokens)))


@pytest.mark.slow
def test_remat_changes_no_gradient(spec):
    spec = replace(spec, blocks=spec.blocks[:1])
    plain, params = random_model(spec, remat="none")
    gradient = jax.jit(jax.grad(mean_square, argnums=1), static_argnums=0)
    expected = gradient(plain, params, TOKENS)
    for remat in ("layer", "dots"):
        found = gradient(random_model(spec, remat=remat)[0], params, TOKENS)
        for name in params:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("remat", ["none", "layer"])
def test_remat_keeps_no_scores_for_the_backward_pass(spec, remat):
    graphdef, params = random_model(spec, remat=remat)
    _, backward = jax.vjp(lambda params: mean_square(graphdef, params, TOKENS), params)
    kept = [leaf.shape for leaf in jax.tree.leaves(backward) if leaf.dtype == jnp.float32]
    scores = [shape for shape in kept if len(shape) >= 4 and shape[-2:] == (7, 7)]
    assert bool(scores) == (remat == "none")
    # Under remat: parameters, each layer's input, and what the last norm and the head keep.
    inside_mlp = [shape for shape in kept if shape == (2, 7, spec.mlp)]
    assert bool(inside_mlp) == (remat == "none")


# MLPs in chunks

TINY = spec_from_config(GEMMA)
SHAPE = jax.ShapeDtypeStruct((2, 12), jnp.int32)


def gradient_of(graphdef):
    def total(params, tokens):
        hidden = bind(graphdef, params).hidden(tokens)
        return (hidden * jnp.linspace(-1, 1, hidden.size).reshape(hidden.shape)).sum()

    return jax.grad(total)


def assert_alike(one, other):
    """Compare the gradients of two decoders, each with its parameters."""
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 23, SHAPE.shape), jnp.int32)
    wanted, found = (
        unstack_layers(jax.jit(gradient_of(graphdef))(params, tokens)) for graphdef, params in (one, other)
    )
    assert set(found) == set(wanted)
    for name, expected in wanted.items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-4 * np.abs(expected).max() + 1e-7)


def test_a_chunk_is_some_positions_of_every_sequence():
    assert chunk_count(4, 1024, 1024) == 4
    assert chunk_count(4, 1000, 1024) == 4
    assert chunk_count(4, 1024, 3) == 1024
    assert chunk_count(4, 1024, None) == chunk_count(4, 1024, 4096) == 1


def test_every_token_is_computed_once_by_itself_and_none_is_added():
    x = jnp.arange(2 * 7 * 3, dtype=jnp.float32).reshape(2, 7, 3)
    found = map_chunks(lambda chunk, number: chunk * 2 + number.astype(chunk.dtype), x, 3)
    numbers = np.asarray([0, 0, 0, 1, 1, 1, 2])[None, :, None]  # positions 0 to 2, 3 to 5, and 6
    np.testing.assert_array_equal(found, np.asarray(x) * 2 + numbers)


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["none", "layer"])
def test_the_gradient_is_that_of_the_whole(spec, remat):
    graphdef, params = random_model(spec, remat=remat)
    in_chunks, _ = flatten(abstract(spec, **FLOAT32 | {"remat": remat}, mlp_chunk_tokens=10))  # 5 of 12 positions
    assert_alike((graphdef, params), (in_chunks, params))


@pytest.mark.slow
def test_stacked_layers_take_chunks_too():
    graphdef, params = random_model(TINY, remat="layer")
    chosen = FLOAT32 | {"remat": "layer", "layer_groups": equal_layers(TINY), "mlp_chunk_tokens": 10}
    stacked, like = flatten(abstract(TINY, **chosen))
    assert_alike((graphdef, params), (stacked, stack(params, like)))


def test_an_adapter_drops_other_inputs_in_each_chunk():
    adapters = {"layers.0.mlp.up": Lora(rank=2, scale=1.0, dropout=0.5)}
    chosen = FLOAT32 | {"adapters": adapters, "mlp_chunk_tokens": 4}
    graphdef, params = flatten(build(TINY, key=jax.random.key(0), **chosen))
    params["layers.0.mlp.up.lora_b"] = jnp.ones_like(params["layers.0.mlp.up.lora_b"])
    alike = jnp.broadcast_to(jnp.linspace(-1, 1, TINY.embed), (1, 8, TINY.embed))
    found = bind(graphdef, params).layers[0].mlp(alike, Dropout(jax.random.key(0)))
    assert not np.allclose(found[0, :4], found[0, 4:])


@pytest.mark.parametrize("remat", ["none", "layer"])
def test_chunks_are_not_taken_for_layers_that_are_computed_again(remat):
    graphdef, params = flatten(abstract(TINY, **FLOAT32 | {"remat": remat}, mlp_chunk_tokens=10))
    jaxpr = jax.make_jaxpr(gradient_of(graphdef))(params, SHAPE)
    assert (count_remat_blocks(jaxpr) > 0) == (remat == "layer")


def test_a_recomputed_layer_computes_its_chunks_twice_and_not_a_third_time():
    one_layer = replace(TINY, blocks=TINY.blocks[:1])
    graphdef, params = flatten(abstract(one_layer, **FLOAT32 | {"remat": "layer"}, mlp_chunk_tokens=10))
    program = jax.jit(gradient_of(graphdef)).lower(params, SHAPE).compile().as_text()
    assert program.count(" while(") == 2  # the way there, and the way back, which computes a chunk again
