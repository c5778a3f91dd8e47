"""The same model and the same answers, computed in many ways: what other hardware may change, and what it may not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation.one_pass import AnswerTrace, follow_texts
from trainer.generate.decode import generate
from trainer.loop.mesh import build_mesh
from trainer.loop.state import with_shardings
from trainer.loop.task import Task
from trainer.loop.trained_params import kept_params
from trainer.methods.model import Model
from trainer.model.attention import Context
from trainer.model.files.source import resolve
from trainer.model.params import Params, bind

Text = tuple[list[int], list[int]]
"""A prompt and an answer, in token ids."""


def task_of(config: Config, compute: str, devices: int = 1) -> Task:
    """Return a run's task with products in another element type, on some devices."""
    changed = replace(config, precision=replace(config.precision, compute=compute))
    changed = replace(changed, mesh=replace(changed.mesh, shard_params=devices > 1))
    return Task.of(changed, resolve(config.model.name), build_mesh(jax.devices()[:devices]))


def params_of(folder: Path, devices: int = 1) -> Params:
    """Return the parameters that a run kept."""
    params = kept_params(folder, task_of(load_config(folder / "config.yaml"), "float32", devices))
    assert params is not None
    return params


def spread(params: Params, task: Task) -> Params:
    """Return parameters split over the devices of a task."""
    return {
        name: jax.device_put(params[name], shape.sharding)
        for name, shape in with_shardings(task.model.shapes, task).items()
    }


def written(model: Model, params: Params, prompts: Sequence[list[int]], *, new: int, stop: int, rows: int) -> list[Any]:
    """Return what the model writes, with the states that it was chosen from."""
    made = generate(
        model.graphdef, params, prompts, max_new_tokens=new, stop_token_id=stop, batch_size=rows, keep_states=True
    )
    return list(made)


def in_one_pass(model: Model, params: Params, texts: Sequence[Text], *, rows: int) -> list[AnswerTrace]:
    """Return what the model makes of given answers."""
    return list(follow_texts(model.graphdef, params, texts, batch_size=rows))


def packed(model: Model, params: Params, texts: Sequence[Text]) -> Iterator[np.ndarray]:
    """Yield the states of each answer where all texts stand in rows of two, which do not see each other."""
    hidden = jax.jit(lambda params, tokens, segments: bind(model.graphdef, params).hidden(tokens, segments))
    width = 2 * max(len(prompt) + len(answer) for prompt, answer in texts)
    for first, second in zip(texts[::2], texts[1::2], strict=True):
        tokens, segments = np.zeros((1, width), np.int32), np.zeros((1, width), np.int32)
        places, at = [], 0
        for number, (prompt, answer) in enumerate((first, second), 1):
            whole = [*prompt, *answer]
            tokens[0, at : at + len(whole)], segments[0, at : at + len(whole)] = whole, number
            places.append(at + len(prompt) - 1 + np.arange(len(answer)))
            at += len(whole)
        states = np.asarray(hidden(params, jnp.asarray(tokens), jnp.asarray(segments))[0])
        yield from (states[place] for place in places)


def in_chunks(model: Model, params: Params, texts: Sequence[Text], *, chunk: int) -> Iterator[np.ndarray]:
    """Yield the states of each answer where a text goes through in chunks, each looking back at the cache."""

    def extended(params: Params, tokens: Any, slot: Any, caches: Any) -> Any:
        positions = slot + jnp.arange(chunk, dtype=jnp.int32)[None, :]
        context = Context(positions=positions, slot=slot, padding=jnp.zeros((1,), jnp.int32))
        return bind(model.graphdef, params).extend(tokens, context, caches)

    call = jax.jit(extended)
    width = -(-max(len(prompt) + len(answer) for prompt, answer in texts) // chunk) * chunk
    for prompt, answer in texts:
        tokens = np.zeros((1, width), np.int32)
        tokens[0, : len(prompt) + len(answer)] = [*prompt, *answer]
        caches, parts = bind(model.graphdef, params).empty_caches(1, width), []
        for start in range(0, width, chunk):
            part, caches = call(params, jnp.asarray(tokens[:, start : start + chunk]), jnp.int32(start), caches)
            parts.append(np.asarray(part[0]))
        yield np.concatenate(parts)[len(prompt) - 1 : len(prompt) + len(answer) - 1]
