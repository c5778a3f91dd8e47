"""Batched decoding with a key-value cache: greedy or sampled, streamed, or in groups for reinforcement learning.

Prompts are padded on the left, so that all rows write their next token into the same slot of the cache, and padding is
masked. All batches of a call have one shape and are compiled once. If the parameters are sharded, devices share the
rows. Groups read each prompt once and repeat its cache; once half of their rows have ended, the others continue in a
program of half as many rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Key
from numpy.typing import ArrayLike, NDArray

from trainer.distributed import fetch, place
from trainer.generate.sampling import DrawKeys, Sampling, draw_tokens
from trainer.model.attention import Context, KeyValues
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
from trainer.recorder.environment import CompilerOptions

PROMPT_BUCKET = 32
"""Prompts are padded to a multiple of this, so that sets with similar longest prompts share a program."""

CHUNK_TOKENS = 32  # new tokens of a group between two checks how many rows have ended


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The new tokens of one prompt."""

    tokens: tuple[int, ...]  # includes the stop token if it was generated
    finish_reason: Literal["stop", "length"]  # the last token is the stop token, or `max_new_tokens` was reached first


class Draws(NamedTuple):
    """Sampling state of each row."""

    keys: Key[Array, " batch"]  # one key for all tokens of a row
    log_probs: Float[Array, "batch max_new_tokens"]  # log-probability of each token, in nats
    entropies: Float[Array, "batch max_new_tokens"]  # entropy of the distribution of each token, in nats


class DecodeState(NamedTuple):
    """Loop state of decoding."""

    written: Array  # new tokens, `[batch max_new_tokens]`, zero-padded
    new_tokens: Array  # new tokens per row so far, `[]`
    last: Array  # newest token of each row, `[batch]`
    done: Array  # whether a row has its stop token, `[batch]`
    caches: list[KeyValues]
    draws: Draws | None = None  # None for greedy decoding


def generate(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_token_id: int,
    batch_size: int,
    like: Sequence[Sequence[int]] = (),
    drawing: DrawKeys | None = None,
    options: CompilerOptions = (),
) -> Iterator[Completion]:
    """Yield the completions of each prompt, in order, batch by batch; several samples of a prompt are consecutive.

    With a model that always continues t with t + 1, the prompt `[3, 4]` and stop token 7 give `(5, 6, 7)` with
    finish_reason `stop`; with `max_new_tokens=2` they give `(5, 6)` with `length`. Ties go to the smallest id.

    Prompts are not empty and leave room for `max_new_tokens` positions, at least 1, the stop token included.
    `batch_size` completions are computed at a time by all devices together, rounded up to one prompt per device.
    `like` are the prompts of the whole set if `prompts` is a subset, which then uses the program of the whole set, so
    that on the same machine each completion has the same bits. Without `drawing`, one greedy completion per prompt.
    """
    longest = max((len(prompt) for prompt in (*prompts, *like)), default=1)
    spec = bind(graphdef, params).spec
    assert not spec.learned_positions or longest + max_new_tokens <= spec.max_positions, "no row for such a position"
    assert all(prompts), "a prompt without tokens has nothing to continue"
    width = padded(longest)
    samples = 1 if drawing is None else drawing.keys.shape[1]
    over = find_rows_sharding(params)
    devices = 1 if over is None else over.mesh.size
    at_a_time = prompts_at_a_time(batch_size, samples, devices)
    rows = prompt_rows(at_a_time, max(len(prompts), len(like)), devices)
    for start in range(0, len(prompts), at_a_time):
        batch = prompts[start : start + at_a_time]
        # A short last batch is filled up with its own first prompt: the same shape, hence the same program.
        arrays = pad_left([*batch, *([batch[0]] * (rows - len(batch)))], width)
        arguments = [*(arrays if over is None else place(arrays, over)), jnp.int32(stop_token_id)]
        settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "over": over}
        if drawing is not None:
            settings["sampling"] = drawing.sampling
            arguments.append(drawing.keys[np.minimum(np.arange(start, start + rows), len(prompts) - 1)].reshape(-1))
        written = fetch(decode_under(options)(graphdef, params, *arguments, **settings))
        for number in range(len(batch) * samples):
            yield completion(written[number].tolist(), stop_token_id)


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
    """Stream the greedy completion of one prompt token by token, including the stop token.

    The tokens equal those of `generate` with the same `batch_size` and `like`, because the batch has the same shape.
    """
    width = padded(max(map(len, (prompt, *like))))
    tokens, lengths = jax.device_put(pad_left([prompt] * min(batch_size, max(len(like), 1)), width))
    stop, (first, further, _) = jnp.int32(stop_token_id), group_functions(options, None)
    with jax.default_matmul_precision("highest"):
        state = first(graphdef, params, tokens, lengths, stop, max_new_tokens=max_new_tokens)
    for number in range(1, max_new_tokens + 1):
        token = int(state.last[0])
        yield token
        if token == stop_token_id or number == max_new_tokens:
            return
        with jax.default_matmul_precision("highest"):
            state = further(graphdef, params, state, lengths, stop, state.new_tokens + 1)


def prompts_at_a_time(batch_size: int, samples: int, devices: int = 1) -> int:
    """Return the prompts per batch: `batch_size` completions, equally many prompts on each device.

    30 prompts on eight devices become 32, and 4 become 8.
    """
    prompts = max(1, batch_size // samples)
    return prompt_rows(prompts, prompts, devices)


def prompt_rows(at_a_time: int, prompts: int, devices: int) -> int:
    """Return the prompts in a program: no more than there are, equally many on each device."""
    return -(-min(at_a_time, prompts) // devices) * devices


def find_rows_sharding(params: Params) -> NamedSharding | None:
    """Return the sharding of rows over the devices that hold the parameters, or None for one device."""
    for value in params.values():
        sharding = getattr(value, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            return NamedSharding(sharding.mesh, PartitionSpec(sharding.mesh.axis_names[0]))
    return None


def padded(length: int) -> int:
    """Return the padded length of a prompt."""
    return -(-length // PROMPT_BUCKET) * PROMPT_BUCKET


def pad_left(
    prompts: Sequence[Sequence[int] | np.ndarray], width: int
) -> tuple[Int[np.ndarray, "batch prompt"], Int[np.ndarray, " batch"]]:
    """Return left-padded prompts and their lengths."""
    tokens = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[width - len(prompt) :] = prompt
    return tokens, np.array([len(prompt) for prompt in prompts], np.int32)


def completion(written: list[int], stop_token_id: int) -> Completion:
    """Cut a row of new tokens after its first stop token."""
    if stop_token_id not in written:
        return Completion(tokens=tuple(written), finish_reason="length")
    return Completion(tokens=tuple(written[: written.index(stop_token_id) + 1]), finish_reason="stop")


def decode(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Int[Array, "batch prompt"],
    lengths: Int[Array, " batch"],
    stop: Int[Array, ""],
    keys: Key[Array, " rows"] | None = None,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    over: NamedSharding | None = None,
) -> Int[Array, "rows max_new_tokens"]:
    """Return the new tokens of each left-padded prompt; those after a row's first stop token are undefined.

    The loop ends when all rows have stopped. Products of float32 have full precision on GPUs and TPUs too, so that a
    run's evaluation and a script give the same tokens. `first_tokens` describes the arguments; `over` is the sharding
    of rows over devices, or None for one device.
    """
    with jax.default_matmul_precision("highest"):
        settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "sampling": sampling}
        state = first_tokens(graphdef, params, prompts, lengths, stop, keys, **settings)
        if over is not None:
            everywhere = NamedSharding(over.mesh, PartitionSpec())
            shardings = jax.tree.map(lambda leaf: over if leaf.ndim else everywhere, state)
            state = jax.lax.with_sharding_constraint(state, shardings)
        if keys is not None:
            lengths = jnp.repeat(lengths, len(keys) // len(lengths))
        return further_tokens(graphdef, params, state, lengths, stop, max_new_tokens, sampling=sampling).written


@cache
def decode_under(options: CompilerOptions = ()) -> Any:
    """Return `decode` under `jax.jit` with compiler options; the same function for the same options."""
    static = ("graphdef", "max_new_tokens", "sampling", "over")
    return jax.jit(decode, static_argnames=static, compiler_options=dict(options) or None)


def first_tokens(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Int[Array, "prompts width"],
    lengths: Int[Array, " prompts"],
    stop: Int[Array, ""],
    keys: Key[Array, " rows"] | None = None,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
) -> DecodeState:
    """Read left-padded prompts of these lengths once and return the state after the first new token of each row.

    `graphdef` and `params` are from `decoder.flatten`. There is one key per sample, equally many for each prompt, with
    `sampling`, or None for greedy decoding.
    """
    decoder = bind(graphdef, params)
    batch, width = prompts.shape
    padding = width - lengths
    places = jnp.arange(width, dtype=jnp.int32)[None, :] - padding[:, None]
    context = Context(positions=jnp.maximum(places, 0), slot=jnp.int32(0), padding=padding)
    all_hidden, caches = decoder.extend(prompts, context, decoder.empty_caches(batch, width + max_new_tokens))
    hidden, draws = all_hidden[:, -1], None
    if keys is not None:
        size = len(keys) // len(lengths)
        hidden, caches, lengths = jax.tree.map(
            lambda each: jnp.repeat(each, size, axis=0, total_repeat_length=len(keys)), (hidden, caches, lengths)
        )
        zeros = jnp.zeros((len(keys), max_new_tokens), jnp.float32)
        draws = Draws(keys, zeros, zeros)
    rows = len(lengths)
    written = jnp.zeros((rows, max_new_tokens), jnp.int32)
    state = DecodeState(written, jnp.int32(0), lengths, jnp.zeros((rows,), jnp.bool_), caches, draws)
    return _append_token(decoder, state, hidden, caches, stop, sampling)


def further_tokens(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    state: DecodeState,
    lengths: Int[Array, " rows"],
    stop: Int[Array, ""],
    upto: int | Int[Array, ""],
    *,
    sampling: Sampling | None = None,
) -> DecodeState:
    """Return the state once each row has `upto` new tokens or all rows have stopped."""
    decoder = bind(graphdef, params)
    width = state.caches[0].keys.shape[2] - state.written.shape[1]
    padding = width - lengths

    def unfinished(state: DecodeState) -> Bool[Array, ""]:
        return (state.new_tokens < upto) & ~jnp.all(state.done)

    def step(state: DecodeState) -> DecodeState:
        at = state.new_tokens - 1
        context = Context(positions=(lengths + at)[:, None], slot=width + at, padding=padding)
        hidden, caches = decoder.extend(state.last[:, None], context, state.caches)
        return _append_token(decoder, state, hidden[:, 0], caches, stop, sampling)

    return jax.lax.while_loop(unfinished, step, state)


def _append_token(
    decoder: Decoder,
    state: DecodeState,
    hidden: Float[Array, "batch embed"],
    caches: list[KeyValues],
    stop: Array,
    sampling: Sampling | None,
) -> DecodeState:
    at = state.new_tokens

    def put(into: Array, values: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(into, values[:, None], at, axis=1)

    logits, draws = decoder.logits(hidden), state.draws
    if sampling is None or draws is None:
        token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    else:
        token, log_probs, entropies = draw_tokens(logits, draws.keys, at, sampling)
        draws = Draws(draws.keys, put(draws.log_probs, log_probs), put(draws.entropies, entropies))
    done = state.done | (token == stop)
    return DecodeState(put(state.written, token), at + 1, token, done, caches, draws)


@dataclass(frozen=True, kw_only=True)
class DrawnCompletion:
    """One sampled completion."""

    written: Completion
    log_probs: NDArray[np.float32]  # `[tokens]`: in nats, under the full softmax at the sampling temperature
    entropies: NDArray[np.float32]  # `[tokens]`: entropy of that softmax, in nats


@dataclass(frozen=True, kw_only=True)
class GroupPrograms:
    """Samples groups of completions from one model."""

    graphdef: nnx.GraphDef[Decoder]
    group_size: int  # completions per prompt
    max_new_tokens: int  # most new tokens per completion, stop token included
    stop_token_id: int
    sampling: Sampling
    options: CompilerOptions = ()
    sharding: NamedSharding | None = None  # sharding of prompts and rows, or None for one device

    def draw(
        self,
        params: Params,
        prompts: Int[np.ndarray, "prompts width"],
        lengths: Int[np.ndarray, " prompts"],
        *,
        keys: Key[Array, " rows"],
    ) -> list[DrawnCompletion]:
        """Sample the completions of left-padded prompts, group by group.

        There is one key per completion, `prompts × group_size`. Equal keys and prompts give equal tokens.
        """
        first, further, take = group_functions(self.options, self.sharding)
        stop = jnp.int32(self.stop_token_id)
        settings: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "sampling": self.sampling}
        arrays = (prompts, lengths, np.repeat(lengths, self.group_size))
        tokens, lengths, repeated = jax.device_put(arrays, self.sharding)
        state = first(self.graphdef, params, tokens, lengths, stop, keys, **settings)
        rows, half = np.arange(len(keys)), half_rows(len(keys), self.sharding)
        shape = (len(rows), self.max_new_tokens)
        written = (np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.float32))

        def collect() -> None:
            assert state.draws is not None, "groups are sampled"
            found = jax.device_get((state.written, state.draws.log_probs, state.draws.entropies))
            for into, values in zip(written, found, strict=True):
                into[rows] = values

        for upto in range(CHUNK_TOKENS, self.max_new_tokens + CHUNK_TOKENS, CHUNK_TOKENS):
            most = jnp.int32(min(upto, self.max_new_tokens))
            state = further(self.graphdef, params, state, repeated, stop, most, sampling=self.sampling)
            done = np.asarray(jax.device_get(state.done))
            if done.all():
                break
            if half < len(rows) == len(keys) and 2 * int(np.sum(~done)) <= len(rows) and upto < self.max_new_tokens:
                collect()
                # The unfinished rows, filled up with finished ones: always half as many.
                kept = np.argsort(done, kind="stable")[:half]
                rows = rows[kept]
                state, repeated = take(params, state, repeated, jnp.asarray(kept))
        collect()
        drawn = []
        for tokens, log_probs, entropies in zip(*written, strict=True):
            text = completion(tokens.tolist(), self.stop_token_id)
            count = len(text.tokens)
            drawn.append(DrawnCompletion(written=text, log_probs=log_probs[:count], entropies=entropies[:count]))
        return drawn


def row_keys(key: Key[Array, ""], rows: ArrayLike, group_size: int) -> Key[Array, " sequences"]:
    """Return one key per completion, derived from its row and its number within the group.

    `rows` has a 32-bit number of each row, `[rows]`, or several, `[rows words]`, such as the words of a hash.
    """
    words = jnp.asarray(rows, jnp.uint32)
    words = words[:, None] if words.ndim == 1 else words
    by_row = jax.vmap(lambda row: reduce(jax.random.fold_in, row, key))(words)
    numbers = jnp.arange(group_size, dtype=jnp.uint32)
    each = jax.vmap(lambda one: jax.vmap(lambda number: jax.random.fold_in(one, number))(numbers))(by_row)
    keys: Key[Array, " sequences"] = each.reshape(-1)
    return keys


def half_rows(rows: int, sharding: NamedSharding | None) -> int:
    """Return the rows that continue once half have ended, rounded up to equally many on each device.

    24 rows become 12, and 16 on 8 devices.
    """
    devices = 1 if sharding is None else sharding.mesh.size
    return -(-rows // (2 * devices)) * devices


def take_rows(
    params: Params, state: DecodeState, lengths: Int[Array, " rows"], kept: Int[Array, " kept"]
) -> tuple[DecodeState, Int[Array, " kept"]]:
    """Select rows of a state and of the prompt lengths.

    The parameters are an argument so that the memory of the compiled program includes them.
    """
    some: tuple[DecodeState, Array] = jax.tree.map(lambda each: each[kept] if each.ndim else each, (state, lengths))
    return some


@cache
def group_functions(options: CompilerOptions, sharding: NamedSharding | None) -> tuple[Any, Any, Any]:
    """Compile `first_tokens`, `further_tokens` (which donates its state) and `take_rows`.

    Their results have rows with this sharding; None means one device.
    """
    state, lengths = dict[str, Any](), dict[str, Any]()
    if sharding is not None:
        rows: Any = sharding
        everywhere: Any = NamedSharding(sharding.mesh, PartitionSpec())
        shardings = DecodeState(rows, everywhere, rows, rows, rows, Draws(rows, rows, rows))
        state, lengths = {"out_shardings": shardings}, {"out_shardings": (shardings, rows)}
    jit = partial(jax.jit, compiler_options=dict(options) or None)
    static = ("graphdef", "sampling")
    return (
        jit(first_tokens, static_argnames=(*static, "max_new_tokens"), **state),
        jit(further_tokens, static_argnames=static, donate_argnames=("state",), **state),
        jit(take_rows, keep_unused=True, **lengths),
    )
