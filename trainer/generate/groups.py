"""Several drawn continuations of each prompt, as learning from rewards needs them.

A prompt is read once and its keys and values repeated for its group. Rows are written in chunks of tokens; as soon as
half of them have ended, the others go on in a program of half the rows. That makes two compiled shapes and no more.
Where devices share the rows, each has groups of its own, and of half the rows as many as every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Key
from numpy.typing import NDArray

from trainer.generate.decode import Completion, completion
from trainer.generate.sampling import Sampling
from trainer.generate.steps import DecodeState, Draws, begin, go_on
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
from trainer.recorder.processor import CompilerOptions

CHUNK_TOKENS = 32
"""New tokens between two looks at how many rows have ended."""


@dataclass(frozen=True, kw_only=True)
class DrawnCompletion:
    """One drawn continuation."""

    written: Completion
    log_probs: NDArray[np.float32]
    """`[tokens]`: of each token under all tokens at the temperature of the draw, in nats."""
    entropies: NDArray[np.float32]
    """`[tokens]`: of what each was drawn from, in nats."""


@dataclass(frozen=True, kw_only=True)
class GroupPrograms:
    """The programs that draw groups, for one model and one way to draw."""

    graphdef: nnx.GraphDef[Decoder]
    group_size: int
    """Continuations of each prompt."""
    max_new_tokens: int
    """Most tokens of each, the stop token included."""
    stop_token_id: int
    sampling: Sampling
    options: CompilerOptions = ()
    """Options of the compiler."""
    sharding: NamedSharding | None = None
    """Of prompts and rows over devices. None: they are on one."""

    def draw(
        self,
        params: Params,
        prompts: Int[np.ndarray, "prompts width"],
        lengths: Int[np.ndarray, " prompts"],
        *,
        keys: Key[Array, " rows"],
    ) -> list[DrawnCompletion]:
        """Return the continuations of left-padded prompts, those of a group behind each other.

        Args:
            params: by name; may be sharded over devices.
            prompts: token ids, zeros before them.
            lengths: tokens of each.
            keys: of each continuation, `prompts × group_size` of them. Equal keys and states draw equal tokens.
        """
        first, further, taken = group_functions(self.options, self.sharding)
        stop = jnp.int32(self.stop_token_id)
        settings: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "sampling": self.sampling}
        both = (prompts, lengths, np.repeat(lengths, self.group_size))
        tokens, lengths, repeated = jax.device_put(both, self.sharding)
        state = first(self.graphdef, params, tokens, lengths, stop, keys, **settings)
        rows, half = np.arange(len(keys)), half_of(len(keys), self.sharding)
        written = _DrawnRows.empty(len(rows), self.max_new_tokens)
        for upto in range(CHUNK_TOKENS, self.max_new_tokens + CHUNK_TOKENS, CHUNK_TOKENS):
            most = jnp.int32(min(upto, self.max_new_tokens))
            state = further(self.graphdef, params, state, repeated, stop, most, sampling=self.sampling)
            done = np.asarray(jax.device_get(state.done))
            if done.all():
                break
            if half < len(rows) == len(keys) and 2 * int(np.sum(~done)) <= len(rows) and upto < self.max_new_tokens:
                written.put(rows, state)
                # Those that have not ended, filled up with some that have: half as many rows in any case.
                kept = np.argsort(done, kind="stable")[:half]
                rows = rows[kept]
                state, repeated = taken(params, state, repeated, jnp.asarray(kept))
        written.put(rows, state)
        return [written.row(number, self.stop_token_id) for number in range(len(keys))]


@dataclass(frozen=True, kw_only=True)
class _DrawnRows:
    """What came of all rows, in the host's memory."""

    tokens: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    entropies: NDArray[np.float32]

    @classmethod
    def empty(cls, rows: int, max_new_tokens: int) -> _DrawnRows:
        """Return room for so many rows."""
        shape = (rows, max_new_tokens)
        return cls(
            tokens=np.zeros(shape, np.int32),
            log_probs=np.zeros(shape, np.float32),
            entropies=np.zeros(shape, np.float32),
        )

    def put(self, rows: NDArray[np.int64], state: DecodeState) -> None:
        """Take what a state holds of these rows."""
        assert state.draws is not None, "groups are drawn"
        found = jax.device_get((state.written, state.draws.log_probs, state.draws.entropies))
        self.tokens[rows], self.log_probs[rows], self.entropies[rows] = found

    def row(self, number: int, stop_token_id: int) -> DrawnCompletion:
        """Return one row up to its end."""
        text = completion(self.tokens[number].tolist(), stop_token_id)
        count = len(text.tokens)
        return DrawnCompletion(
            written=text, log_probs=self.log_probs[number, :count], entropies=self.entropies[number, :count]
        )


def row_keys(key: Key[Array, ""], rows: Sequence[int], group_size: int) -> Key[Array, " sequences"]:
    """Return the key of each continuation: it follows from the row of the data and the number within its group."""
    of_rows = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.asarray(rows, jnp.uint32))
    numbers = jnp.arange(group_size, dtype=jnp.uint32)
    each = jax.vmap(lambda one: jax.vmap(lambda number: jax.random.fold_in(one, number))(numbers))(of_rows)
    keys: Key[Array, " sequences"] = each.reshape(-1)
    return keys


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
    """Return the state after the first new token of each continuation; each prompt is read once."""
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "keep_states": False, "sampling": sampling}
    return begin(bind(graphdef, params), prompts, lengths, stop, keys, **settings)


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
    """Return the state once each row has `upto` new tokens or all have ended; `state` is used up."""
    return go_on(bind(graphdef, params), state, lengths, stop, upto=upto, sampling=sampling)


def take_rows(
    params: Params, state: DecodeState, lengths: Int[Array, " rows"], kept: Int[Array, " kept"]
) -> tuple[DecodeState, Int[Array, " kept"]]:
    """Return a state of some of its rows, and the lengths of their prompts.

    The parameters are given so that what a compiler states of the program counts all that is there.
    """
    some: tuple[DecodeState, Array] = jax.tree.map(lambda each: each[kept] if each.ndim else each, (state, lengths))
    return some


def half_of(rows: int, sharding: NamedSharding | None) -> int:
    """Return how many rows go on where half have ended: half, rounded up so that devices have equally many.

    Of 24 rows 12 go on; of 24 that 8 devices share, 16.
    """
    devices = 1 if sharding is None else sharding.mesh.size
    return -(-rows // (2 * devices)) * devices


@cache
def group_functions(options: CompilerOptions, sharding: NamedSharding | None) -> tuple[Any, Any, Any]:
    """Return `first_tokens`, `further_tokens` and `take_rows` under `jax.jit`.

    Args:
        options: of the compiler.
        sharding: of the rows of what they return. None: they are on one device.
    """
    told = dict(options) or None
    static = ("graphdef", "max_new_tokens", "sampling")
    state, lengths = ({}, {}) if sharding is None else _out_shardings(sharding)
    return (
        jax.jit(first_tokens, static_argnames=static, compiler_options=told, **state),
        jax.jit(
            further_tokens,
            static_argnames=("graphdef", "sampling"),
            donate_argnames=("state",),
            compiler_options=told,
            **state,
        ),
        jax.jit(take_rows, keep_unused=True, compiler_options=told, **lengths),
    )


def _out_shardings(rows: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return where a state's arrays lie, alone and with the lengths of prompts, as settings of `jax.jit`."""
    everywhere: Any = NamedSharding(rows.mesh, PartitionSpec())
    state = DecodeState(rows, everywhere, rows, rows, rows, None, Draws(rows, rows, rows))
    return {"out_shardings": state}, {"out_shardings": (state, rows)}
