"""An MLP in chunks: the same model, less of it at a time, and no more of it computed."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import GEMMA, GPT2, equal_layers, random_model

from trainer.loop.compilation import count_remat_blocks
from trainer.model.decoder import abstract, bind, build, flatten
from trainer.model.families import spec_from_config
from trainer.model.layers import chunk_count, map_chunks
from trainer.model.lora import Dropout, Lora
from trainer.model.stacks import stack_params, unstack_layers

TYPES = {"params_dtype": jnp.float32, "compute_dtype": jnp.float32}
TOKENS = jax.ShapeDtypeStruct((2, 12), jnp.int32)


def gradient_of(graphdef):
    """Return what gives the gradient of a sum of hidden states, by parameters and tokens."""

    def total(params, tokens):
        hidden = bind(graphdef, params).hidden(tokens)
        return (hidden * jnp.linspace(-1, 1, hidden.size).reshape(hidden.shape)).sum()

    return jax.grad(total)


def assert_alike(one, other):
    """Hold that two decoders, each with its parameters, have the same gradient."""
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 23, TOKENS.shape), jnp.int32)
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
    found = map_chunks(
        lambda chunk, number: chunk * 2 + number.astype(chunk.dtype), x, 3
    )  # positions 0 to 2, 3 to 5, and 6
    numbers = np.asarray([0, 0, 0, 1, 1, 1, 2])[None, :, None]
    np.testing.assert_array_equal(found, np.asarray(x) * 2 + numbers)


@pytest.mark.slow
@pytest.mark.parametrize("family", [GPT2, GEMMA])
@pytest.mark.parametrize("remat", ["none", "layer"])
def test_the_gradient_is_that_of_the_whole(family, remat):
    spec = spec_from_config(family)
    graphdef, params = random_model(spec, **TYPES, remat=remat)
    in_chunks, _ = flatten(abstract(spec, **TYPES, remat=remat, mlp_chunk_tokens=10))  # 5 of 12 positions
    assert_alike((graphdef, params), (in_chunks, params))


@pytest.mark.slow
def test_stacked_layers_take_chunks_too():
    spec = spec_from_config(GEMMA)
    graphdef, params = random_model(spec, **TYPES, remat="layer")
    runs = equal_layers(spec)
    stacked, like = flatten(abstract(spec, **TYPES, remat="layer", runs=runs, mlp_chunk_tokens=10))
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = {name: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=device) for name, each in like.items()}
    stacks = stack_params({name: np.asarray(value) for name, value in params.items()}, shapes)
    assert_alike((graphdef, params), (stacked, stacks))


def test_an_adapter_drops_other_inputs_in_each_chunk():
    spec = spec_from_config(GEMMA)
    adapters = {"layers.0.mlp.up": Lora(rank=2, scale=1.0, dropout=0.5)}
    chosen = TYPES | {"remat": "none", "adapters": adapters, "mlp_chunk_tokens": 4}
    graphdef, params = flatten(build(spec, key=jax.random.key(0), **chosen))
    params["layers.0.mlp.up.lora_b"] = jnp.ones_like(params["layers.0.mlp.up.lora_b"])
    alike = jnp.broadcast_to(jnp.linspace(-1, 1, spec.embed), (1, 8, spec.embed))
    mlp = bind(graphdef, params).layers[0].mlp
    found = mlp(alike, Dropout(jax.random.key(0)))
    assert not np.allclose(found[0, :4], found[0, 4:])


@pytest.mark.parametrize("remat", ["none", "layer"])
def test_chunks_are_not_taken_for_layers_that_are_computed_again(remat):
    spec = spec_from_config(GEMMA)
    graphdef, params = flatten(abstract(spec, **TYPES, remat=remat, mlp_chunk_tokens=10))
    jaxpr = jax.make_jaxpr(gradient_of(graphdef))(params, TOKENS)
    assert (count_remat_blocks(jaxpr) > 0) == (remat == "layer")


def test_the_inside_is_computed_twice_and_no_third_time_where_a_layer_is_recomputed():
    spec = spec_from_config(GEMMA)
    one_layer = replace(spec, blocks=spec.blocks[:1])
    graphdef, params = flatten(abstract(one_layer, **TYPES, remat="layer", mlp_chunk_tokens=10))
    program = jax.jit(gradient_of(graphdef)).lower(params, TOKENS).compile().as_text()
    assert program.count(" while(") == 2  # the way there, and the way back, which computes a chunk again
