"""Attention in blocks: equal to the plain way in values and gradients, alone and inside every family."""

import json
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES
from tiny_models import GEMMA, assert_alike, equal_layers, loss_and_gradient, random_model

from trainer.loop.task import build_mesh
from trainer.model import attention as blocks
from trainer.model.attention import AttentionKernel, Context, attend, visible
from trainer.model.families import spec_from_config

KINDS = ("blockwise", "splash")
BOUNDS = {"float32": 4e-6, "bfloat16": 2e-2, "float16": 3e-3}
"""Largest difference, in the largest number of the plain way: docs/decisions/memory.md."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks, the last one not full, where splash has 128."""
    monkeypatch.setattr(blocks, "BLOCK", 32)


def plain(query, keys, values, *, window, segments, scale, softcap):
    length = query.shape[2]
    positions = jnp.broadcast_to(jnp.arange(length)[None], (len(query), length))
    mask = visible(Context(positions=positions, segments=segments), window=window, keys=length)
    return attend(query, keys, values, mask, scale=scale, softcap=softcap)


@partial(jax.jit, static_argnums=0)
def compute_gradients(function, inputs, above):
    """Return values and the gradients of queries, keys and values."""
    read, back = jax.vjp(function, *inputs)
    return (read, *back(above))


def assert_equal_to_plain(
    kernel, *, length=150, heads=4, kv_heads=2, head_dim=16, packed=False, dtype="float32", **how
):
    numbers = np.random.default_rng(1)
    many = (2, heads, length, head_dim), *[(2, kv_heads, length, head_dim)] * 2, (2, heads, length, head_dim)
    *inputs, above = (jnp.asarray(numbers.normal(size=shape), dtype) for shape in many)
    texts = jnp.asarray(np.sort(numbers.integers(1, 5, (2, length)), axis=1), jnp.int32) if packed else None
    same = {"window": None, "softcap": None, "scale": 0.3, "segments": texts} | how
    found = compute_gradients(partial(kernel.attend, **same), inputs, above)
    for one, expected in zip(found, compute_gradients(partial(plain, **same), inputs, above), strict=True):
        one, expected = np.float32(one), np.float32(expected)
        assert one.shape == expected.shape
        np.testing.assert_allclose(one, expected, rtol=0, atol=BOUNDS[dtype] * np.abs(expected).max())


SHAPES = (
    {},
    {"window": 40, "softcap": 5.0, "kv_heads": 1, "head_dim": 20, "packed": True},
    {"length": 20, "kv_heads": 4, "packed": True, "window": 300, "dtype": "bfloat16"},
)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shape"), [*product(KINDS, SHAPES)], ids=str)
def test_windows_caps_groups_texts_and_padding(kind, shape):
    assert_equal_to_plain(AttentionKernel(kind=kind, interpreted=True), **shape)


def test_float16_and_a_window_that_only_the_program_knows():
    assert_equal_to_plain(AttentionKernel(kind="blockwise"), dtype="float16", window=jnp.int32(40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_devices_read_their_own_sequences(kind):
    kernel = AttentionKernel(kind=kind, interpreted=True, mesh=build_mesh(jax.devices()[:2]))
    assert_equal_to_plain(kernel, packed=True, window=40)


FULL = ("gpt2", "gemma", "llama")
WINDOWED = ("gemma2", "gemma3-capped", "mistral", "qwen2", "qwen3-window", "smollm3-window")


@pytest.mark.slow(but=("llama-blockwise", "llama-splash"))
@pytest.mark.parametrize(("family", "kind"), [*product(FULL + WINDOWED, KINDS)])
def test_every_family_learns_the_same(family: str, kind: str):
    config = json.loads((CASES / family / "config.json").read_text())
    seen = {"layer_types": ["sliding_attention"]} if family in WINDOWED else {}
    spec = spec_from_config(config | {"n_layer" if family == "gpt2" else "num_hidden_layers": 1} | seen)
    assert (spec.blocks[0].window is not None) == (family in WINDOWED)
    model, texts = random_model(spec), jnp.asarray([[1] * 20 + [2] * 28, [1] * 48], jnp.int32)
    plain, in_blocks = (
        loss_and_gradient(*model, length=48, segments=texts, kernel=kernel)
        for kernel in (None, AttentionKernel(kind=kind, interpreted=True))
    )
    assert_alike(plain, in_blocks)


@pytest.mark.slow
def test_stacked_layers_with_several_windows_are_read_in_blocks():
    varied = {"model_type": "gemma2", "num_hidden_layers": 2, "sliding_window": 3, "rope_theta": 500.0}
    spec = spec_from_config(GEMMA | varied)
    model = random_model(spec, layer_groups=equal_layers(spec))
    in_blocks = loss_and_gradient(*model, length=48, kernel=AttentionKernel(kind="blockwise"))
    assert_alike(loss_and_gradient(*model, length=48), in_blocks)
