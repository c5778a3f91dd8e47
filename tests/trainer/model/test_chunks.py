"""An MLP in chunks: the same model, less of it at a time, and no more of it computed."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import FLOAT32
from tiny_models import GEMMA, equal_layers, random_model, stack

from trainer.loop.compilation import count_remat_blocks
from trainer.model.decoder import abstract, bind, build, flatten
from trainer.model.families import spec_from_config
from trainer.model.layers import chunk_count, map_chunks
from trainer.model.lora import Dropout, Lora
from trainer.model.stacks import unstack_layers

SPEC = spec_from_config(GEMMA)
TOKENS = jax.ShapeDtypeStruct((2, 12), jnp.int32)


def gradient_of(graphdef):
    def total(params, tokens):
        hidden = bind(graphdef, params).hidden(tokens)
        return (hidden * jnp.linspace(-1, 1, hidden.size).reshape(hidden.shape)).sum()

    return jax.grad(total)


def assert_alike(one, other):
    """Compare the gradients of two decoders, each with its parameters."""
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
    graphdef, params = random_model(SPEC, remat="layer")
    chosen = FLOAT32 | {"remat": "layer", "runs": equal_layers(SPEC), "mlp_chunk_tokens": 10}
    stacked, like = flatten(abstract(SPEC, **chosen))
    assert_alike((graphdef, params), (stacked, stack(params, like)))


def test_an_adapter_drops_other_inputs_in_each_chunk():
    adapters = {"layers.0.mlp.up": Lora(rank=2, scale=1.0, dropout=0.5)}
    chosen = FLOAT32 | {"adapters": adapters, "mlp_chunk_tokens": 4}
    graphdef, params = flatten(build(SPEC, key=jax.random.key(0), **chosen))
    params["layers.0.mlp.up.lora_b"] = jnp.ones_like(params["layers.0.mlp.up.lora_b"])
    alike = jnp.broadcast_to(jnp.linspace(-1, 1, SPEC.embed), (1, 8, SPEC.embed))
    found = bind(graphdef, params).layers[0].mlp(alike, Dropout(jax.random.key(0)))
    assert not np.allclose(found[0, :4], found[0, 4:])


@pytest.mark.parametrize("remat", ["none", "layer"])
def test_chunks_are_not_taken_for_layers_that_are_computed_again(remat):
    graphdef, params = flatten(abstract(SPEC, **FLOAT32 | {"remat": remat}, mlp_chunk_tokens=10))
    jaxpr = jax.make_jaxpr(gradient_of(graphdef))(params, TOKENS)
    assert (count_remat_blocks(jaxpr) > 0) == (remat == "layer")


def test_a_recomputed_layer_computes_its_chunks_twice_and_not_a_third_time():
    one_layer = replace(SPEC, blocks=SPEC.blocks[:1])
    graphdef, params = flatten(abstract(one_layer, **FLOAT32 | {"remat": "layer"}, mlp_chunk_tokens=10))
    program = jax.jit(gradient_of(graphdef)).lower(params, TOKENS).compile().as_text()
    assert program.count(" while(") == 2  # the way there, and the way back, which computes a chunk again
