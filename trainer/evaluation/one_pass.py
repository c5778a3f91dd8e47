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
from jaxtyping import Array, Float, Int, Key
from numpy.typing import NDArray

from trainer.generate.decode import padded
from trainer.generate.sampling import DrawKeys, Sampling, draw_noise, kept_logits
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
from trainer.recorder.processor import CompilerOptions


@dataclass(frozen=True, kw_only=True)
class AnswerTrace:
    """How a model follows one given answer."""

    states: NDArray[Any]
    """`[tokens embed]`: the last hidden state that each token of the answer would be chosen from, after the last norm.
    """
    margins: NDArray[np.float32]
    """`[tokens]`: by how much the largest logit is above that of the token that stands there; 0 where it is the
    largest. Of a drawn answer each logit has its noise added, so that 0 is the token that is drawn."""
    losses: NDArray[np.float32]
    """`[tokens]`: of each token, in nats."""


def follow_texts(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    batch_size: int,
    drawing: DrawKeys | None = None,
    options: CompilerOptions = (),
) -> Iterator[AnswerTrace]:
    """Yield what the model makes of each text, in order; all go through one program.

    Args:
        graphdef: from `params.flatten`.
        params: by name; may be sharded over devices.
        texts: of each the prompt and the answer, in token ids, neither empty; together within a table of positions.
        batch_size: texts at a time.
        drawing: how the answers were drawn, with a key for each text (`[texts 1]`). None: they are greedy, or given.
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
        given, settings = [*map(jnp.asarray, (tokens, places, answers))], {}
        if drawing is not None:
            given.append(drawing.keys[np.minimum(np.arange(start, start + rows), len(texts) - 1), 0])
            settings["sampling"] = drawing.sampling
        found = jax.device_get(call(graphdef, params, *given, **settings))
        for row, (_, answer) in enumerate(batch):
            states, margins, losses = (each[row, : len(answer)] for each in found)
            yield AnswerTrace(states=states, margins=margins, losses=losses)


def follow(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    tokens: Int[Array, "batch seq"],
    places: Int[Array, "batch new"],
    answers: Int[Array, "batch new"],
    keys: Key[Array, " batch"] | None = None,
    *,
    sampling: Sampling | None = None,
) -> tuple[Float[Array, "batch new embed"], Float[Array, "batch new"], Float[Array, "batch new"]]:
    """Return the states at some places of each row, how far the token named there is below the best, and its loss.

    Logits are taken one row at a time, so that never more than `[new vocab]` of them exist. A drawn token is the one
    with the largest logit once the noise of its key and number is added, which is here added again.
    """
    decoder = bind(graphdef, params)
    hidden = jnp.take_along_axis(decoder.hidden(tokens), places[:, :, None], axis=1)

    def of_row(row: tuple[Array, ...]) -> tuple[Array, Array]:
        states, chosen, *key = row
        logits = decoder.logits(states)
        named = jnp.take_along_axis(logits, chosen[:, None], axis=-1)[:, 0]
        losses = jax.nn.logsumexp(logits, axis=-1) - named
        if sampling is None:
            return jnp.max(logits, axis=-1) - named, losses
        return margins_of_draws(logits, chosen, key[0], sampling), losses

    given = (hidden, answers) if keys is None else (hidden, answers, keys)
    return hidden, *jax.lax.map(of_row, given)


def margins_of_draws(
    logits: Float[Array, "new vocab"], chosen: Int[Array, " new"], key: Key[Array, ""], sampling: Sampling
) -> Float[Array, " new"]:
    """Return by how much the drawn logit is above that of each chosen token, both with their noise.

    A token that is not among those drawn from is also as far off as its logit is below the least of them.
    """
    scaled = logits / jnp.float32(sampling.temperature)
    noise = jax.vmap(lambda number: draw_noise(key, number, logits.shape[1]))(jnp.arange(len(chosen)))
    kept = kept_logits(scaled, sampling)

    def named(values: Array) -> Array:
        taken: Array = jnp.take_along_axis(values, chosen[:, None], axis=-1)[:, 0]
        return taken

    least = jnp.min(jnp.where(jnp.isfinite(kept), kept, jnp.inf), axis=-1)
    behind = jnp.max(kept + noise, axis=-1) - named(scaled + noise)
    margins: Array = jnp.maximum(behind, least - named(scaled)) * jnp.float32(sampling.temperature)
    return margins


@cache
def _follow_under(options: CompilerOptions) -> Any:
    return jax.jit(follow, static_argnames=("graphdef", "sampling"), compiler_options=dict(options) or None)
