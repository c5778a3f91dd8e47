"""Decoding of many prompts at once, greedy or drawn, with the keys and values of earlier tokens kept.

Prompts are padded on the left, so that all rows write their next token into the same slot of the cache; padding is
never looked at, and a row's result does not depend on the rows beside it. All batches of a call have one shape and are
compiled once. Turning text into tokens and back, and scoring, happen elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from numpy.typing import NDArray

from trainer.generate.sampling import Sampling, draw_tokens
from trainer.model.attention import Context, KeyValues
from trainer.model.decoder import Decoder
from trainer.model.params import Params, bind
from trainer.recorder.processor import CompilerOptions

PROMPT_BUCKET = 32
"""Padded prompt lengths are multiples of this, so that sets with nearly the same longest prompt share a program."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What the model wrote for one prompt."""

    tokens: tuple[int, ...]
    """The new tokens, the stop token included where it came."""

    finish_reason: Literal["stop", "length"]
    """stop: the last token is the stop token. length: `max_new_tokens` came first."""

    states: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    """`[tokens embed]`: of each new token the last hidden state that it was chosen from. None: they were not kept."""


def generate(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_token_id: int,
    batch_size: int,
    like: Sequence[Sequence[int]] = (),
    keep_states: bool = False,
    options: CompilerOptions = (),
) -> Iterator[Completion]:
    """Yield the completion of each prompt, in order, as each batch is done.

    With a model whose most likely token after t is t + 1, the prompt `[3, 4]`, stop token 7 and room enough, the
    completion is `(5, 6, 7)`, finish_reason `stop`; with `max_new_tokens=2` it is `(5, 6)`, `length`. Of equally likely
    tokens the smallest id is taken.

    Args:
        graphdef: from `params.flatten`.
        params: by name; may be sharded over devices.
        prompts: token ids, none empty, each with `max_new_tokens` within a table of positions.
        max_new_tokens: most tokens written for a prompt, the stop token included; at least 1.
        stop_token_id: the token that ends an output.
        batch_size: prompts answered at a time.
        like: prompts that `prompts` are a part of. They are answered by the same program as all of them would be, so
            that on the same machine each has the same bits.
        keep_states: give the last hidden states with each completion.
        options: options of the compiler.
    """
    longest = max((len(prompt) for prompt in (*prompts, *like)), default=1)
    spec = bind(graphdef, params).spec
    assert not spec.learned_positions or longest + max_new_tokens <= spec.max_positions, "no row for such a position"
    assert all(prompts), "a prompt without tokens has nothing to continue"
    width = padded(longest)
    rows = min(batch_size, max(len(prompts), len(like)))
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        # A short last batch is filled up with its own first prompt: the same shape, hence the same program.
        filled = [*batch, *([batch[0]] * (rows - len(batch)))]
        tokens, lengths = pad_left(filled, width)
        stop = jnp.asarray(stop_token_id, jnp.int32)
        settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "keep_states": keep_states}
        found = jax.device_get(decode_under(options)(graphdef, params, tokens, lengths, stop, **settings))
        for number in range(len(batch)):
            states = found.states[number] if keep_states else None
            yield completion(found.tokens[number].tolist(), stop_token_id, states)


def padded(length: int) -> int:
    """Return the length that a prompt of `length` tokens is padded to."""
    return -(-length // PROMPT_BUCKET) * PROMPT_BUCKET


def pad_left(prompts: Sequence[Sequence[int]], width: int) -> tuple[Int[Array, "batch prompt"], Int[Array, " batch"]]:
    """Return the prompts at the right end of rows of `width` tokens, zeros before them, and their lengths."""
    tokens = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[width - len(prompt) :] = prompt
    return jnp.asarray(tokens), jnp.asarray([len(prompt) for prompt in prompts], jnp.int32)


def completion(written: list[int], stop_token_id: int, states: NDArray[Any] | None = None) -> Completion:
    """Cut a row of the output, and the states that it was chosen from, after its first stop token."""
    stopped = stop_token_id in written
    tokens = tuple(written[: written.index(stop_token_id) + 1] if stopped else written)
    kept = None if states is None else states[: len(tokens)]
    return Completion(tokens=tokens, finish_reason="stop" if stopped else "length", states=kept)


class GeneratedBatch(NamedTuple):
    """What a batch was answered with."""

    tokens: Int[Array, "batch max_new_tokens"]
    """What follows a row's first stop token means nothing."""

    states: Float[Array, "batch max_new_tokens embed"] | None
    """The last hidden state that each token was chosen from, after the last norm. None: they are not kept."""


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


def decode(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Int[Array, "batch prompt"],
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    *,
    max_new_tokens: int,
    keep_states: bool = False,
) -> GeneratedBatch:
    """Return the greedy continuation of each left-padded prompt, and the states it was chosen from if they are kept.

    The cache has a slot for every padded prompt token and every new one. The loop ends when all rows have stopped.
    """
    decoder = bind(graphdef, params)
    begun = begin(decoder, prompts, lengths, stop, max_new_tokens=max_new_tokens, keep_states=keep_states)
    ended = go_on(decoder, begun, lengths, stop, upto=max_new_tokens)
    return GeneratedBatch(tokens=ended.written, states=ended.states)


def begin(
    decoder: Decoder,
    prompts: Int[Array, "batch prompt"],
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    *,
    max_new_tokens: int,
    keep_states: bool,
) -> DecodeState:
    """Return the state after the first new token of each left-padded prompt."""
    hidden, caches = read_prompts(decoder, prompts, lengths, max_new_tokens=max_new_tokens)
    shape = (*hidden.shape[:1], max_new_tokens, hidden.shape[-1])
    states = jnp.zeros(shape, hidden.dtype) if keep_states else None
    return with_token(decoder, nothing_written(caches, lengths, max_new_tokens, states=states), hidden, caches, stop)


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


@cache
def decode_under(options: CompilerOptions = ()) -> Any:
    """Return `decode` under `jax.jit`, compiled under further options; the same function for the same options."""
    static = ("graphdef", "max_new_tokens", "keep_states")
    return jax.jit(decode, static_argnames=static, compiler_options=dict(options) or None)
