"""The steps of decoding: reading prompts, and one token more in each row, the likeliest or a drawn one.

Prompts are padded on the left, so that all rows write their next token into the same slot of the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from trainer.generate.sampling import Sampling, draw_tokens
from trainer.model.attention import Context, KeyValues
from trainer.model.decoder import Decoder


class Draws(NamedTuple):
    """What drawn tokens leave besides themselves."""

    keys: Key[Array, " batch"]
    """Of each row, for all of its tokens."""

    log_probs: Float[Array, "batch max_new_tokens"]
    """Of each token written, in nats."""

    entropies: Float[Array, "batch max_new_tokens"]
    """Of what each was drawn from, in nats."""


class DecodeState(NamedTuple):
    """What one step of decoding hands to the next."""

    written: Array
    """`[batch max_new_tokens]`, zeros where nothing was written yet."""

    new_tokens: Array
    """Tokens written so far in each row, `[]`."""

    last: Array
    """The newest token of each row, `[batch]`."""

    done: Array
    """Whether the row has its stop token, `[batch]`."""

    caches: list[KeyValues]

    states: Array | None
    """`[batch max_new_tokens embed]`, as `written`. None: they are not kept."""

    draws: Draws | None = None
    """None: each token is the likeliest."""


def begin(
    decoder: Decoder,
    prompts: Int[Array, "batch prompt"],
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    keys: Key[Array, " rows"] | None = None,
    *,
    max_new_tokens: int,
    keep_states: bool,
    sampling: Sampling | None = None,
) -> DecodeState:
    """Return the state after the first new token of each continuation; each left-padded prompt is read once."""
    hidden, caches = read_prompts(decoder, prompts, lengths, max_new_tokens=max_new_tokens)
    draws = None
    if keys is not None:
        size = len(keys) // len(lengths)
        hidden, caches, lengths = jax.tree.map(
            lambda each: jnp.repeat(each, size, axis=0, total_repeat_length=len(keys)), (hidden, caches, lengths)
        )
        nothing = jnp.zeros((len(keys), max_new_tokens), jnp.float32)
        draws = Draws(keys, nothing, nothing)
    shape = (*hidden.shape[:1], max_new_tokens, hidden.shape[-1])
    states = jnp.zeros(shape, hidden.dtype) if keep_states else None
    begun = nothing_written(caches, lengths, max_new_tokens, states=states, draws=draws)
    return with_token(decoder, begun, hidden, caches, stop, sampling)


def read_prompts(
    decoder: Decoder, prompts: Int[Array, "batch prompt"], lengths: Int[Array, " batch"], *, max_new_tokens: int
) -> tuple[Float[Array, "batch embed"], list[KeyValues]]:
    """Return the state that the first new token is chosen from, and keys and values with room for the new tokens."""
    batch, width = prompts.shape
    padding = width - lengths
    places = jnp.arange(width, dtype=jnp.int32)[None, :] - padding[:, None]
    context = Context(positions=jnp.maximum(places, 0), slot=jnp.int32(0), padding=padding)
    hidden, caches = decoder.extend(prompts, context, decoder.empty_caches(batch, width + max_new_tokens))
    return hidden[:, -1], caches


def nothing_written(
    caches: list[KeyValues],
    lengths: Int[Array, " batch"],
    max_new_tokens: int,
    *,
    states: Array | None = None,
    draws: Draws | None = None,
) -> DecodeState:
    """Return the state before the first new token."""
    batch = len(lengths)
    nothing = jnp.zeros((batch, max_new_tokens), jnp.int32)
    return DecodeState(nothing, jnp.int32(0), lengths, jnp.zeros((batch,), jnp.bool_), caches, states, draws)


def go_on(
    decoder: Decoder,
    begun: DecodeState,
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    *,
    upto: int | Int[Array, ""],
    sampling: Sampling | None = None,
) -> DecodeState:
    """Return the state once each row has `upto` new tokens, or all rows have stopped.

    Args:
        decoder: the model.
        begun: with one new token at least.
        lengths: of the prompts.
        stop: the token that ends a row.
        upto: new tokens.
        sampling: how tokens are drawn. None: each is the likeliest.
    """
    width = begun.caches[0].keys.shape[2] - begun.written.shape[1]
    padding = width - lengths

    def unfinished(state: DecodeState) -> Bool[Array, ""]:
        return (state.new_tokens < upto) & ~jnp.all(state.done)

    def step(state: DecodeState) -> DecodeState:
        at = state.new_tokens - 1
        context = Context(positions=(lengths + at)[:, None], slot=width + at, padding=padding)
        hidden, caches = decoder.extend(state.last[:, None], context, state.caches)
        return with_token(decoder, state, hidden[:, 0], caches, stop, sampling)

    return jax.lax.while_loop(unfinished, step, begun)


def with_token(
    decoder: Decoder,
    state: DecodeState,
    hidden: Float[Array, "batch embed"],
    caches: list[KeyValues],
    stop: Array,
    sampling: Sampling | None = None,
) -> DecodeState:
    """Return the state with the next token of each row: the likeliest, or a drawn one."""
    at = state.new_tokens

    def put(into: Array, values: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(into, values[:, None], at, axis=1)

    logits, draws = decoder.logits(hidden), state.draws
    if sampling is None or draws is None:
        token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    else:
        token, log_probs, entropies = draw_tokens(logits, draws.keys, at, sampling)
        draws = Draws(draws.keys, put(draws.log_probs, log_probs), put(draws.entropies, entropies))
    states = None if state.states is None else put(state.states, hidden)
    done = state.done | (token == stop)
    return DecodeState(put(state.written, token), at + 1, token, done, caches, states, draws)
