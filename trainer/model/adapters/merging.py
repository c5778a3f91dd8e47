"""Adds adapters to the kernels they are on, so that what remains is a plain model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from schemas.problems import ProblemError, problem_of
from trainer.model.adapters.reading import HEAD_TABLE, TOKENS_TABLE, Adapter, read_adapter, with_head
from trainer.model.build import abstract
from trainer.model.files.export import export
from trainer.model.files.loading import load_params
from trainer.model.files.source import ModelSource, resolve
from trainer.model.lora import Lora, is_lora, lora_names
from trainer.model.params import Params, flatten
from trainer.model.quantised import dequantise

DTYPES = ("float32", "bfloat16", "float16")


def merge_loras(params: Mapping[str, Any], loras: Mapping[str, Lora]) -> Params:
    """Return the parameters of the plain model that a decoder with adapters computes, adapters and all.

    Args:
        params: of a decoder with adapters, by name.
        loras: the adapters, by the name of their projection.
    """
    base = dense({name: value for name, value in params.items() if not is_lora(name)})
    own = {name: value for name, value in params.items() if is_lora(name)}
    return with_adapters(base, [(Adapter(loras=dict(loras), params=own), 1.0)])


def dense(params: Mapping[str, Any]) -> Params:
    """Return parameters with every quantised kernel in the type of the token table, as an export writes it."""
    dtype = params["tokens.table"].dtype
    found: Params = {}
    for name, value in params.items():
        if name.endswith(".codes"):
            projection = name.removesuffix(".codes")
            found[f"{projection}.kernel"] = dequantise(value, params[f"{projection}.scales"], dtype)
        elif not name.endswith(".scales"):
            found[name] = value
    return dict(sorted(found.items()))


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
    computed = next((each.source for each, _ in read if each.source and not each.source.spec.tied_head), source)
    for adapter, _ in read:
        if TOKENS_TABLE in adapter.params and adapter.source and adapter.source.spec.tied_head:
            adapter.params[HEAD_TABLE] = adapter.params[TOKENS_TABLE]  # for another adapter that unties them
    export(folder, with_adapters(with_head(params, computed), read), computed, go_on=go_on)


def merge_named(base: str, adapters: Sequence[str], folder: Path, *, dtype: str | None = None) -> None:
    """Merge adapters, given as on the command line, into a model.

    Args:
        base: folder, or name on the hub.
        adapters: folders, each with `=weight` behind it where that is not 1; a folder of that whole name comes first.
        folder: made here.
        dtype: of what is written. None: as the base's config.json states.

    Raises:
        ProblemError: base or adapter cannot be used, a weight or dtype is invalid, or the folder is taken.
    """
    source = resolve(base)
    chosen = dtype or source.config.get("dtype") or source.config.get("torch_dtype") or "float32"
    if chosen not in DTYPES:
        what = f"The element type {chosen!r} is not one that a model is written in."
        raise ProblemError([problem_of("TP066", file=base, what=what, expected=", ".join(DTYPES))], exit_code=2)
    merge(source, [parse_weighted(each) for each in adapters], folder, dtype=chosen)


def parse_weighted(text: str) -> tuple[Path, float]:
    """Return folder and weight: `adapters/one=0.7` is `adapters/one` and 0.7."""
    name, equals, weight = text.rpartition("=")
    if not equals or Path(text).is_dir():
        return Path(text), 1.0
    try:
        value = float(weight)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = f"The weight of {name} is {weight!r}, which is not a number."
        raise ProblemError([problem_of("TP066", file=text, what=what)], exit_code=2)
    return Path(name), value
