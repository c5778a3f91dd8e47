"""Sample groups of completions per prompt, as reinforcement learning needs them.

Each prompt is read once and its cache repeated for its group. Tokens are generated in chunks. Once half of the rows
have ended, the others continue in a program of half as many rows, so there are two compiled shapes and no more. If
devices share the rows, each has whole groups, and all have equally many rows in both programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Key
from numpy.typing import ArrayLike, NDArray

from trainer.generate.decode import Completion, DecodeState, Draws, completion, decode_loop, prefill
from trainer.generate.sampling import Sampling
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
from trainer.recorder.environment import CompilerOptions

CHUNK_TOKENS = 32
"""New tokens between two checks how many rows have ended."""


@dataclass(frozen=True, kw_only=True)
class DrawnCompletion:
    """One sampled completion."""

    written: Completion
    log_probs: NDArray[np.float32]
    """`[tokens]`: log-probability in nats under the full softmax at the sampling temperature."""
    entropies: NDArray[np.float32]
    """`[tokens]`: entropy of that softmax, in nats."""


@dataclass(frozen=True, kw_only=True)
class GroupPrograms:
    """Samples groups of completions from one model."""

    graphdef: nnx.GraphDef[Decoder]
    group_size: int
    """Completions per prompt."""
    max_new_tokens: int
    """Most new tokens per completion, stop token included."""
    stop_token_id: int
    sampling: Sampling
    options: CompilerOptions = ()
    """Compiler options."""
    sharding: NamedSharding | None = None
    """Sharding of prompts and rows, or None for one device."""

    def draw(
        self,
        params: Params,
        prompts: Int[np.ndarray, "prompts width"],
        lengths: Int[np.ndarray, " prompts"],
        *,
        keys: Key[Array, " rows"],
    ) -> list[DrawnCompletion]:
        """Return the completions of left-padded prompts; those of a group are consecutive.

        Args:
            params: Parameters by name; may be sharded.
            prompts: Token ids, left-padded with zeros.
            lengths: Length of each prompt.
            keys: One key per completion, `prompts × group_size`. Equal keys and prompts give equal tokens.
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
        return [self._completion(*(each[number] for each in written)) for number in range(len(keys))]

    def _completion(
        self, tokens: NDArray[np.int32], log_probs: NDArray[np.float32], entropies: NDArray[np.float32]
    ) -> DrawnCompletion:
        text = completion(tokens.tolist(), self.stop_token_id)
        count = len(text.tokens)
        return DrawnCompletion(written=text, log_probs=log_probs[:count], entropies=entropies[:count])


def row_keys(key: Key[Array, ""], rows: ArrayLike, group_size: int) -> Key[Array, " sequences"]:
    """Return one key per completion, derived from its row and its number within the group.

    Args:
        key: Key of the rollout or evaluation.
        rows: A 32-bit number of each row, `[rows]`, or several, `[rows words]`, such as the words of a hash.
        group_size: Completions per row.
    """
    words = jnp.asarray(rows, jnp.uint32)
    by_row = jax.vmap(lambda row: reduce(jax.random.fold_in, row, key))(words.reshape(len(words), -1))
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


def first_tokens(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    prompts: Int[Array, "prompts width"],
    lengths: Int[Array, " prompts"],
    stop: Int[Array, ""],
    keys: Key[Array, " rows"],
    *,
    max_new_tokens: int,
    sampling: Sampling,
) -> DecodeState:
    """Read each prompt once and return the state after the first new token of each completion."""
    decoder = bind(graphdef, params)
    return prefill(decoder, prompts, lengths, stop, keys, max_new_tokens=max_new_tokens, sampling=sampling)


def further_tokens(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    state: DecodeState,
    lengths: Int[Array, " rows"],
    stop: Int[Array, ""],
    upto: Int[Array, ""],
    *,
    sampling: Sampling,
) -> DecodeState:
    """Return the state once each row has `upto` new tokens or all have ended; `state` is donated."""
    return decode_loop(bind(graphdef, params), state, lengths, stop, upto=upto, sampling=sampling)


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
    """Return `first_tokens`, `further_tokens` and `take_rows` under `jax.jit`.

    Args:
        options: Compiler options.
        sharding: Sharding of the rows of their results, or None for one device.
    """
    compiler = dict(options) or None
    state: dict[str, Any] = {}
    lengths: dict[str, Any] = {}
    if sharding is not None:
        rows: Any = sharding
        everywhere: Any = NamedSharding(sharding.mesh, PartitionSpec())
        shardings = DecodeState(rows, everywhere, rows, rows, rows, Draws(rows, rows, rows))
        state, lengths = {"out_shardings": shardings}, {"out_shardings": (shardings, rows)}
    return (
        jax.jit(
            first_tokens, static_argnames=("graphdef", "max_new_tokens", "sampling"), compiler_options=compiler, **state
        ),
        jax.jit(
            further_tokens,
            static_argnames=("graphdef", "sampling"),
            donate_argnames=("state",),
            compiler_options=compiler,
            **state,
        ),
        jax.jit(take_rows, keep_unused=True, compiler_options=compiler, **lengths),
    )
