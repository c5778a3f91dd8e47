"""Models small enough that a test knows what they must compute."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from trainer.model.attention import AttentionKernel
from trainer.model.decoder import Decoder, DecoderConfig, abstract, bind, flatten, set_attention
from trainer.model.families import spec_from_config
from trainer.model.spec import ModelSpec
from trainer.model.stacks import Params, stack_params, unstack_layers

GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 23,
    "n_positions": 64,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 12,
}

GEMMA: dict[str, Any] = {
    "model_type": "gemma",
    "vocab_size": 23,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
}


def random_model(spec: ModelSpec, seed: int = 0, **choices: Any) -> tuple[nnx.GraphDef[Decoder], Params]:
    """Return a model whose every parameter is random, norms and biases too: none can be left out unseen."""
    chosen = {"params_dtype": jnp.float32, "compute_dtype": jnp.float32, "remat": "none"} | choices
    graphdef, shapes = flatten(abstract(spec, **chosen))
    numbers = np.random.default_rng(seed)
    return graphdef, {
        name: jnp.asarray(0.3 * numbers.normal(size=wanted.shape) + name.endswith("norm.scale"), wanted.dtype)
        for name, wanted in shapes.items()
    }


@partial(jax.jit, static_argnums=0)
def logits(graphdef: nnx.GraphDef[Decoder], params: Params, tokens: Any) -> jax.Array:
    """Return the logits at every position, compiled: op by op a test takes ten times as long."""
    decoder = bind(graphdef, params)
    return decoder.logits(decoder.hidden(jnp.asarray(tokens)))


def loss_and_gradient(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    *,
    length: int = 12,
    segments: jax.Array | None = None,
    key: jax.Array | None = None,
    kernel: AttentionKernel | None = None,
) -> tuple[float, Params]:
    """Return a weighted sum of the hidden states of two random texts, and its gradient, with single layers."""
    numbers = np.random.default_rng(0)
    tokens = jnp.asarray(numbers.integers(0, 23, (2, length)), jnp.int32)
    weights = jnp.asarray(numbers.normal(size=(1, length, 1)), jnp.float32)
    codes = {name: value for name, value in params.items() if not jnp.issubdtype(value.dtype, jnp.floating)}

    def loss_of(learned: Params) -> jax.Array:
        hidden = set_attention(bind(graphdef, learned | codes), kernel).hidden(tokens, segments, key)
        return jnp.sum(hidden * weights)

    learned = {name: value for name, value in params.items() if name not in codes}
    loss, gradient = jax.jit(jax.value_and_grad(loss_of))(learned)
    return float(loss), unstack_layers(gradient)


def assert_alike(one: tuple[float, Params], other: tuple[float, Params], *, tolerance: float = 1e-4) -> None:
    """Compare losses and gradients."""
    (loss, gradient), (again, found) = one, other
    assert again == pytest.approx(loss, rel=1e-4, abs=1e-3)
    assert set(found) == set(gradient)
    # That of a key's bias is 0 but for rounding: a softmax does not see it.
    largest = max(float(np.abs(each).max()) for each in gradient.values())
    for name, expected in gradient.items():
        bound = tolerance * float(np.abs(expected).max()) + 1e-6 * largest
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=bound, err_msg=name)


def equal_layers(spec: ModelSpec, **choices: Any) -> tuple[range, ...]:
    """Return the runs of equal layers of a model."""
    return DecoderConfig(
        spec=spec, params_dtype="float32", compute_dtype="float32", remat="none", **choices
    ).equal_layers()


def stack(params: Params, like: Params) -> Params:
    """Return parameters with layers stacked as in `like`, on the first device."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = {name: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=device) for name, each in like.items()}
    return stack_params({name: np.asarray(value) for name, value in params.items()}, placed)


def split_over_eight(params: Params) -> dict[str, NamedSharding]:
    """Return shardings over eight devices, which divide the first axis where it is a multiple of eight."""
    mesh = jax.make_mesh((8,), ("shard",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, divided = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("shard"))
    return {name: whole if value.shape[0] % 8 else divided for name, value in params.items()}


def counting_model(vocab: int) -> tuple[nnx.GraphDef[Decoder], Params]:
    """Return a model whose most likely token after t is t + 1, and after the last one token 0."""
    sizes = {"vocab_size": vocab, "hidden_size": vocab, "intermediate_size": 2, "head_dim": 2, "num_hidden_layers": 1}
    alone = {"num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": False}
    spec = spec_from_config(GEMMA | sizes | alone | {"max_position_embeddings": 256})
    graphdef, params = random_model(spec)
    # Tokens are unit vectors, every layer adds nothing, and the head looks for the unit vector of the token before.
    zeros = {name: jnp.zeros_like(value) for name, value in params.items()}
    unit = jnp.eye(vocab, dtype=jnp.float32)
    return graphdef, zeros | {"tokens.table": unit, "head.table": jnp.roll(unit, 1, axis=0)}
