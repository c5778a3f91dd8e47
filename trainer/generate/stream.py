"""One text continued token by token, each handed over as it is chosen: the steps of `decode`, from one to the next.

A row of the same batch in a program of the same shapes: what is streamed is what `generate` gives at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Int

from trainer.generate.decode import pad_left, padded
from trainer.generate.steps import DecodeState, begin, go_on
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
from trainer.recorder.processor import CompilerOptions


def stream_tokens(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    stop_token_id: int,
    batch_size: int,
    like: Sequence[Sequence[int]] = (),
    options: CompilerOptions = (),
) -> Iterator[int]:
    """Yield the new tokens of one prompt, the stop token included where it comes.

    Args:
        graphdef: from `params.flatten`.
        params: by name; may be sharded over devices.
        prompt: token ids, at least one, with `max_new_tokens` within a table of positions.
        max_new_tokens: most tokens written, the stop token included; at least 1.
        stop_token_id: the token that ends an output.
        batch_size: prompts that `generate` would answer at a time.
        like: prompts that this one is a part of; its answer then has the bits that it has among them.
        options: options of the compiler.
    """
    width = padded(max(map(len, (prompt, *like))))
    tokens, lengths = pad_left([prompt] * min(batch_size, max(len(like), 1)), width)
    stop = jnp.asarray(stop_token_id, jnp.int32)
    first, further = _programs(options)
    state = first(graphdef, params, tokens, lengths, stop, max_new_tokens=max_new_tokens)
    for number in range(1, max_new_tokens + 1):
        token = int(state.last[0])
        yield token
        if token == stop_token_id or number == max_new_tokens:
            return
        state = further(graphdef, params, state, lengths, stop)


def first_token(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Int[Array, "batch prompt"],
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    *,
    max_new_tokens: int,
) -> DecodeState:
    """Return the state after the first new token of each left-padded prompt."""
    decoder = bind(graphdef, params)
    return begin(decoder, prompts, lengths, stop, max_new_tokens=max_new_tokens, keep_states=False)


def next_token(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    state: DecodeState,
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
) -> DecodeState:
    """Return the state with one more token in each row; `state` is used up."""
    return go_on(bind(graphdef, params), state, lengths, stop, upto=state.new_tokens + 1)


@cache
def _programs(options: CompilerOptions) -> tuple[Any, Any]:
    """Return `first_token` and `next_token` under `jax.jit`, compiled under further options."""
    told = dict(options) or None
    return (
        jax.jit(first_token, static_argnames=("graphdef", "max_new_tokens"), compiler_options=told),
        jax.jit(next_token, static_argnames=("graphdef",), donate_argnames=("state",), compiler_options=told),
    )
