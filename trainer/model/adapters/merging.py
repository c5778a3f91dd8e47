"""Adds adapters to the kernels they are on, so that what remains is a plain model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from trainer.model.adapters.reading import Adapter, read_adapter
from trainer.model.build import abstract
from trainer.model.files.export import export
from trainer.model.files.loading import load_params
from trainer.model.files.source import ModelSource
from trainer.model.lora import Lora, is_lora, lora_names
from trainer.model.params import Params, flatten


def merged(params: Mapping[str, Any], loras: Mapping[str, Lora]) -> Params:
    """Return the parameters of the plain model that a decoder with adapters computes, adapters and all.

    Args:
        params: of a decoder with adapters, by name.
        loras: the adapters, by the name of their projection.
    """
    base = {name: value for name, value in params.items() if not is_lora(name)}
    own = {name: value for name, value in params.items() if is_lora(name)}
    return with_adapters(base, [(Adapter(loras=dict(loras), params=own), 1.0)])


def with_adapters(params: Mapping[str, Any], adapters: Sequence[tuple[Adapter, float]]) -> Params:
    """Return a model's parameters with several adapters merged in, each with its weight.

    Sums are taken in float32 and rounded once to the type of the parameter.
    """
    found: Params = {}
    for name, value in sorted(params.items()):
        moves = [move * weight for adapter, weight in adapters if (move := move_of(name, value, adapter)) is not None]
        whole = sum(moves, jnp.asarray(value, jnp.float32)) if moves else value
        found[name] = whole.astype(value.dtype) if moves else value
    return found


def move_of(name: str, value: Any, adapter: Adapter) -> Any:
    """Return what an adapter adds to a parameter, or None: `scale · first · second`, or the way to its own value."""
    projection = name.removesuffix(".kernel")
    if projection in adapter.loras and projection != name:
        first, second = (jnp.asarray(adapter.params[each], jnp.float32) for each in lora_names(projection))
        return jnp.matmul(first, second, precision="highest") * adapter.loras[projection].scale
    if name in adapter.params and not is_lora(name):
        return jnp.asarray(adapter.params[name], jnp.float32) - jnp.asarray(value, jnp.float32)
    return None


def merge(
    source: ModelSource,
    adapters: Sequence[tuple[Path, float]],
    folder: Path,
    *,
    dtype: str,
    go_on: Callable[[], None] = lambda: None,
) -> None:
    """Write a model with adapters merged into it as a folder that every other tool loads.

    Args:
        source: the base.
        adapters: their folders, each with its weight; 1 adds what was trained.
        folder: made here.
        dtype: of what is written.
        go_on: called between files of the export.

    Raises:
        ProblemError: base or adapter cannot be used, or the folder is taken.
    """
    read = [(read_adapter(path, source), weight) for path, weight in adapters]
    decoder = abstract(source.spec, params_dtype=dtype, compute_dtype=dtype, remat="none")
    params = load_params(source, flatten(decoder)[1])
    export(folder, with_adapters(params, read), source, go_on=go_on)
