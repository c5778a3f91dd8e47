"""What a model makes of texts that are given: for each new token the state it would be chosen from, and by how much.

One pass over prompt and answer, all positions at once: far cheaper than writing the answer token by token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from trainer.generate.decode import padded
from trainer.model.decoder import Decoder
from trainer.model.params import Params, bind
from trainer.recorder.processor import CompilerOptions


@dataclass(frozen=True, kw_only=True)
class AnswerTrace:
    """How a model follows one given answer."""

    states: NDArray[Any]
    """`[tokens embed]`: the last hidden state that each token of the answer would be chosen from, after the last norm.
    """
    margins: NDArray[np.float32]
    """`[tokens]`: by how much the largest logit is above that of the token that stands there; 0 where it is the
    largest."""
    losses: NDArray[np.float32]
    """`[tokens]`: of each token, in nats."""


def follow_texts(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    batch_size: int,
    options: CompilerOptions = (),
) -> Iterator[AnswerTrace]:
    """Yield what the model makes of each text, in order; all go through one program.

    Args:
        graphdef: from `params.flatten`.
        params: by name; may be sharded over devices.
        texts: of each the prompt and the answer, in token ids, neither empty; together within a table of positions.
        batch_size: texts at a time.
        options: options of the compiler.
    """
    width = padded(max((len(prompt) + len(answer) for prompt, answer in texts), default=1))
    most = padded(max((len(answer) for _, answer in texts), default=1))
    spec = bind(graphdef, params).spec
    width = min(width, spec.max_positions) if spec.learned_positions else width
    rows, call = min(batch_size, len(texts)), _follow_under(options)
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        tokens, places = np.zeros((rows, width), np.int32), np.zeros((rows, most), np.int32)
        answers = np.zeros((rows, most), np.int32)
        for row, (prompt, answer) in enumerate(batch):
            tokens[row, : len(prompt) + len(answer)] = [*prompt, *answer]
            places[row, : len(answer)] = np.arange(len(prompt) - 1, len(prompt) + len(answer) - 1)
            answers[row, : len(answer)] = answer
        found = jax.device_get(call(graphdef, params, *map(jnp.asarray, (tokens, places, answers))))
        for row, (_, answer) in enumerate(batch):
            states, margins, losses = (each[row, : len(answer)] for each in found)
            yield AnswerTrace(states=states, margins=margins, losses=losses)


def follow(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    tokens: Int[Array, "batch seq"],
    places: Int[Array, "batch new"],
    answers: Int[Array, "batch new"],
) -> tuple[Float[Array, "batch new embed"], Float[Array, "batch new"], Float[Array, "batch new"]]:
    """Return the states at some places of each row, how far the token named there is below the best, and its loss.

    Logits are taken one row at a time, so that never more than `[new vocab]` of them exist.
    """
    decoder = bind(graphdef, params)
    hidden = jnp.take_along_axis(decoder.hidden(tokens), places[:, :, None], axis=1)

    def of_row(row: tuple[Array, Array]) -> tuple[Array, Array]:
        states, chosen = row
        logits = decoder.logits(states)
        named = jnp.take_along_axis(logits, chosen[:, None], axis=-1)[:, 0]
        return jnp.max(logits, axis=-1) - named, jax.nn.logsumexp(logits, axis=-1) - named

    return hidden, *jax.lax.map(of_row, (hidden, answers))


@cache
def _follow_under(options: CompilerOptions) -> Any:
    return jax.jit(follow, static_argnames=("graphdef",), compiler_options=dict(options) or None)
