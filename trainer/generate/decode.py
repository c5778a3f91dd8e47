"""Decoding of many prompts at once, greedy or drawn, with the keys and values of earlier tokens kept.

Prompts are padded on the left, so that all rows write their next token into the same slot of the cache; padding is
never looked at, and a row's result does not depend on the rows beside it. All batches of a call have one shape and are
compiled once. Devices that hold the parameters share the rows, each with the keys and values of its own. Turning text
into tokens and back, and scoring, happen elsewhere.
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
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key
from numpy.typing import NDArray

from trainer.generate.sampling import DrawKeys, Sampling
from trainer.generate.steps import DecodeState, begin, go_on
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
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
    drawing: DrawKeys | None = None,
    options: CompilerOptions = (),
) -> Iterator[Completion]:
    """Yield the completion of each prompt, in order, as each batch is done; drawn ones of a prompt follow each other.

    With a model whose most likely token after t is t + 1, the prompt `[3, 4]`, stop token 7 and room enough, the
    completion is `(5, 6, 7)`, finish_reason `stop`; with `max_new_tokens=2` it is `(5, 6)`, `length`. Of equally likely
    tokens the smallest id is taken.

    Args:
        graphdef: from `params.flatten`.
        params: by name; where they lie on several devices, these share the rows.
        prompts: token ids, none empty, each with `max_new_tokens` within a table of positions.
        max_new_tokens: most tokens written for a prompt, the stop token included; at least 1.
        stop_token_id: the token that ends an output.
        batch_size: completions written at a time, by all devices together; more where each device would have no prompt.
        like: prompts that `prompts` are a part of. They are answered by the same program as all of them would be, so
            that on the same machine each has the same bits.
        keep_states: give the last hidden states with each completion.
        drawing: how several of each prompt are drawn. None: one, of the likeliest tokens.
        options: options of the compiler.
    """
    longest = max((len(prompt) for prompt in (*prompts, *like)), default=1)
    spec = bind(graphdef, params).spec
    assert not spec.learned_positions or longest + max_new_tokens <= spec.max_positions, "no row for such a position"
    assert all(prompts), "a prompt without tokens has nothing to continue"
    width = padded(longest)
    samples = 1 if drawing is None else drawing.keys.shape[1]
    over = rows_sharding_of(params)
    at_a_time = prompts_at_a_time(batch_size, samples, devices_of(over))
    rows = prompt_rows(at_a_time, max(len(prompts), len(like)), devices_of(over))
    for start in range(0, len(prompts), at_a_time):
        batch = prompts[start : start + at_a_time]
        # A short last batch is filled up with its own first prompt: the same shape, hence the same program.
        filled = [*batch, *([batch[0]] * (rows - len(batch)))]
        tokens, lengths = pad_left(filled, width)
        if over is not None:
            tokens, lengths = jax.device_put((tokens, lengths), over)
        stop = jnp.asarray(stop_token_id, jnp.int32)
        settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "keep_states": keep_states, "over": over}
        keys: tuple[Array, ...] = ()
        if drawing is not None:
            settings["sampling"] = drawing.sampling
            keys = (drawing.keys[np.minimum(np.arange(start, start + rows), len(prompts) - 1)].reshape(-1),)
        found = jax.device_get(decode_under(options)(graphdef, params, tokens, lengths, stop, *keys, **settings))
        for number in range(len(batch) * samples):
            states = found.states[number] if keep_states else None
            yield completion(found.tokens[number].tolist(), stop_token_id, states)


def prompts_at_a_time(batch_size: int, samples: int, devices: int = 1) -> int:
    """Return how many prompts are answered at a time: `batch_size` completions, all of a prompt's together.

    Devices have equally many, so that 30 prompts are 32 on eight devices, and 4 prompts 8.
    """
    prompts = max(1, batch_size // samples)
    return prompt_rows(prompts, prompts, devices)


def prompt_rows(at_a_time: int, prompts: int, devices: int) -> int:
    """Return the rows of prompts that a program has: no more than there are, and equally many on each device."""
    return -(-min(at_a_time, prompts) // devices) * devices


def rows_sharding_of(params: Params) -> NamedSharding | None:
    """Return how rows are shared by the devices that parameters lie on; None: there is one."""
    for value in params.values():
        sharding = getattr(value, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            return NamedSharding(sharding.mesh, PartitionSpec(sharding.mesh.axis_names[0]))
    return None


def devices_of(over: NamedSharding | None) -> int:
    """Return how many devices share rows."""
    return 1 if over is None else over.mesh.size


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


def decode(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Int[Array, "batch prompt"],
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    keys: Key[Array, " rows"] | None = None,
    *,
    max_new_tokens: int,
    keep_states: bool = False,
    sampling: Sampling | None = None,
    over: NamedSharding | None = None,
) -> GeneratedBatch:
    """Return the continuation of each left-padded prompt, and the states it was chosen from if they are kept.

    The cache has a slot for every padded prompt token and every new one. The loop ends when all rows have stopped.

    Args:
        graphdef: from `params.flatten`.
        params: by name.
        prompts: token ids.
        lengths: of the prompts.
        stop: the token that ends a row.
        keys: of each drawn continuation, as many for each prompt. None: each prompt has the greedy one.
        max_new_tokens: most tokens of each.
        keep_states: give the states.
        sampling: how tokens are drawn, where there are keys.
        over: how devices share the rows. None: one has them all.
    """
    decoder = bind(graphdef, params)
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "keep_states": keep_states}
    begun = over_devices(begin(decoder, prompts, lengths, stop, keys, sampling=sampling, **settings), over)
    if keys is not None:
        lengths = jnp.repeat(lengths, len(keys) // len(lengths))
    ended = go_on(decoder, begun, lengths, stop, upto=max_new_tokens, sampling=sampling)
    return GeneratedBatch(tokens=ended.written, states=ended.states)


def over_devices(state: DecodeState, over: NamedSharding | None) -> DecodeState:
    """Return a state whose rows, keys and values among them, are on the devices that share them."""
    if over is None:
        return state
    everywhere = NamedSharding(over.mesh, PartitionSpec())
    found: DecodeState = jax.lax.with_sharding_constraint(
        state, jax.tree.map(lambda leaf: over if leaf.ndim else everywhere, state)
    )
    return found


@cache
def decode_under(options: CompilerOptions = ()) -> Any:
    """Return `decode` under `jax.jit`, compiled under further options; the same function for the same options."""
    static = ("graphdef", "max_new_tokens", "keep_states", "sampling", "over")
    return jax.jit(decode, static_argnames=static, compiler_options=dict(options) or None)
