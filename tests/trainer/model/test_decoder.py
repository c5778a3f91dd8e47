"""The forward pass against a plain NumPy twin, and what must not change it."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import GEMMA, logits, random_model

from trainer.model.decoder import bind
from trainer.model.families import spec_from_config
from trainer.model.spec import Dynamic, LongRope, ModelSpec, Rope


def twin(spec: ModelSpec, params: dict, tokens: np.ndarray) -> np.ndarray:
    """Compute the logits of one row in float64, one token and one head at a time."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    x = p["tokens.table"][tokens]
    if spec.scale_embeddings:
        x = x * math.sqrt(spec.embed)
    if spec.learned_positions:
        x = x + p["positions.table"][: len(tokens)]
    for index in range(spec.layers):
        at = f"layers.{index}."
        x = x + twin_attention(spec, p, at + "attention.", twin_norm(spec, p, at + "attention_norm.", x))
        x = x + twin_mlp(spec, p, at + "mlp.", twin_norm(spec, p, at + "mlp_norm.", x))
    return twin_norm(spec, p, "final_norm.", x) @ p["tokens.table" if spec.tied_head else "head.table"].T


def twin_norm(spec, p, at, x):
    rows = []
    for row in x:
        if spec.norm == "layer":
            rows.append(
                (row - row.mean()) / math.sqrt(row.var() + spec.norm_epsilon) * p[at + "scale"] + p[at + "bias"]
            )
        else:
            rows.append(row / math.sqrt((row**2).mean() + spec.norm_epsilon) * (1 + p[at + "scale"]))
    return np.stack(rows)


def twin_linear(p, at, x):
    return x @ p[at + ".kernel"] + p.get(at + ".bias", 0.0)


def twin_rotate(spec, vector, position):
    half = len(vector) // 2
    turned = np.empty_like(vector)
    for i in range(half):
        angle = position * spec.blocks[0].rope.theta ** (-2 * i / len(vector))
        a, b = vector[i], vector[i + half]
        turned[i], turned[i + half] = (
            a * math.cos(angle) - b * math.sin(angle),
            a * math.sin(angle) + b * math.cos(angle),
        )
    return turned


def twin_attention(spec, p, at, x):
    def heads(name: str) -> np.ndarray:
        return twin_linear(p, at + name, x).reshape(len(x), -1, spec.head_dim)

    query, keys, values = heads("query"), heads("key"), heads("value")
    mixed = np.zeros_like(query)
    for head in range(spec.heads):
        shared = head * spec.kv_heads // spec.heads
        for position in range(len(x)):
            turn = (lambda v, at: twin_rotate(spec, v, at)) if spec.blocks[0].rope else (lambda v, at: v)
            asked = turn(query[position, head], position)
            scores = [
                asked @ turn(keys[other, shared], other) / math.sqrt(spec.head_dim) for other in range(position + 1)
            ]
            weights = np.exp(scores) / np.exp(scores).sum()
            mixed[position, head] = weights @ values[: position + 1, shared]
    return twin_linear(p, at + "out", mixed.reshape(len(x), -1))


def twin_mlp(spec, p, at, x):
    inside = twin_linear(p, at + ("gate" if spec.gated_mlp else "up"), x)
    inside = 0.5 * inside * (1 + np.tanh(math.sqrt(2 / math.pi) * (inside + 0.044715 * inside**3)))
    if spec.gated_mlp:
        inside = inside * twin_linear(p, at + "up", x)
    return twin_linear(p, at + "down", inside)


TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2], [22, 0, 6, 6, 6, 7, 21]], np.int32)


def test_equals_the_numpy_twin(spec):
    graphdef, params = random_model(spec)
    got = logits(graphdef, params, TOKENS)
    for row, tokens in zip(got, TOKENS, strict=True):
        np.testing.assert_allclose(row, twin(spec, params, tokens), atol=2e-5)


def test_a_token_does_not_see_those_after_it(spec):
    graphdef, params = random_model(spec)
    other_end = TOKENS.copy()
    other_end[:, 4:] = 11
    before, after = logits(graphdef, params, TOKENS), logits(graphdef, params, other_end)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert not np.allclose(before[:, 4:], after[:, 4:], atol=1e-3)


def test_right_padding_changes_nothing(spec):
    graphdef, params = random_model(spec)
    padded = np.concatenate([TOKENS, np.zeros((2, 9), np.int32)], axis=1)
    np.testing.assert_allclose(logits(graphdef, params, padded)[:, :7], logits(graphdef, params, TOKENS), atol=1e-5)


PACKED = np.array([[3, 1, 4, 1, 5, 22, 0, 6, 6, 0, 0]], np.int32)
SEGMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0]], np.int32)


def with_blocks(spec: ModelSpec, **choices) -> ModelSpec:
    return replace(spec, blocks=tuple(replace(block, **choices) for block in spec.blocks))


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 3])
def test_packed_texts_are_computed_as_if_alone(spec, window):
    graphdef, params = random_model(with_blocks(spec, window=window))
    decoder = bind(graphdef, params)
    packed = decoder.logits(decoder.hidden(jnp.asarray(PACKED), jnp.asarray(SEGMENTS)))
    for text in (PACKED[:, :5], PACKED[:, 5:9]):
        at = 0 if text.shape[1] == 5 else 5
        np.testing.assert_allclose(packed[:, at : at + text.shape[1]], logits(graphdef, params, text), atol=1e-5)


@pytest.mark.parametrize(
    "stretch",
    [
        Dynamic(factor=2.0, positions=4),
        LongRope(short_factors=(1.0, 1.5, 2.0), long_factors=(2.0, 3.0, 4.0), positions=4, attention_factor=1.1),
    ],
)
def test_what_a_stretch_sees_of_a_packed_text_is_that_text_alone(stretch):
    spec = with_blocks(spec_from_config(GEMMA), rope=Rope(stretch=stretch))
    test_packed_texts_are_computed_as_if_alone(spec, None)


def test_with_a_window_a_token_sees_no_further():
    spec = with_blocks(spec_from_config(GEMMA), window=3)
    graphdef, params = random_model(replace(spec, blocks=spec.blocks[:1]))
    other = TOKENS.copy()
    other[:, 2] = 11
    before, after = logits(graphdef, params, TOKENS), logits(graphdef, params, other)
    changed = np.abs(before - after).max(axis=(0, 2)) > 1e-4
    assert changed.tolist() == [False, False, True, True, True, False, False]


@pytest.mark.slow
def test_logits_of_chunks_are_those_of_the_whole(spec):
    graphdef, params = random_model(spec)
    decoder = bind(graphdef, params)
    hidden = decoder.hidden(jnp.asarray(TOKENS))
    flat = hidden.reshape(14, spec.embed)
    chunks = jnp.concatenate([decoder.logits(flat[:5]), decoder.logits(flat[5:])])
    np.testing.assert_allclose(chunks.reshape(2, 7, -1), decoder.logits(hidden), atol=1e-6)


@pytest.mark.slow
def test_bfloat16_is_used_inside_and_logits_are_float32(spec):
    graphdef, params = random_model(spec)
    exact = logits(graphdef, params, TOKENS)
    rough, _ = random_model(spec, compute_dtype=jnp.bfloat16)
    decoder = bind(rough, params)
    hidden = decoder.hidden(jnp.asarray(TOKENS))
    assert hidden.dtype == jnp.bfloat16
    assert decoder.logits(hidden).dtype == jnp.float32
    error = np.abs(decoder.logits(hidden) - exact).max()
    assert 1e-4 < error < 0.2


def mean_square(graphdef, params, tokens):
    return jnp.mean(jnp.square(logits(graphdef, params, tokens)))


@pytest.mark.slow
def test_remat_changes_no_gradient(spec):
    spec = replace(spec, blocks=spec.blocks[:1])
    plain, params = random_model(spec, remat="none")
    others = [random_model(spec, remat=remat)[0] for remat in ("layer", "dots")]
    first, *again = [
        jax.jit(jax.grad(mean_square, argnums=1), static_argnums=0)(g, params, TOKENS) for g in (plain, *others)
    ]
    for gradient in again:
        for name in params:
            np.testing.assert_allclose(first[name], gradient[name], rtol=1e-4, atol=1e-5, err_msg=name)


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
