"""The parameters that a run or its bundle holds, found to be those that gave its stated answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from evidence import layout
from schemas.catalog import MODELS
from schemas.formats import size
from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config
from trainer.loop.base import other_base
from trainer.loop.restoring import latest_step, restored_state
from trainer.loop.state import initial_params, some_params, with_shardings
from trainer.loop.task import Task, without_reference
from trainer.loop.trained_params import kept_params, params_bytes
from trainer.model.decoder import params_sha256
from trainer.model.load import load_params
from trainer.model.lora import lora_names
from trainer.model.model import combine
from trainer.model.peft import projections_by_module, read_adapter
from trainer.model.source import ModelSource, hint_model_path, resolve
from trainer.model.stacks import Params
from trainer.recorder.failure import explain_full_device


@dataclass(frozen=True, kw_only=True)
class ShippedModel:
    """A model that came with a run."""

    params: Params
    where: str
    """The file or folder of the run that it was read from."""


def source_of(folder: Path, config: Config, model: str | None) -> ModelSource:
    """Return what a run's model is built from: the folder that is named, its own export, or what it was trained from.

    Raises:
        ProblemError: exit code 2; it is not there or cannot be read.
    """
    exported = folder / layout.EXPORT
    if model is not None:
        return resolve(model, with_weights=False)
    if config.model.name not in MODELS and config.method.kind == "full" and exported.is_dir():
        return resolve(str(exported), with_weights=False)
    try:
        return resolve(config.model.name, config.model.revision, with_weights=False)
    except ProblemError as error:
        raise hint_model_path(error) from error


def shipped_params(folder: Path, task: Task, manifest: Mapping[str, Any], *, stated_sha256: str | None) -> ShippedModel:
    """Return the parameters that a run holds and that have the hash of those that answered.

    Args:
        folder: of the run, or of its unpacked copy.
        task: what it trained.
        manifest: of the run.
        stated_sha256: the hash that its evaluation states. None: it states none, and the first that are there count.

    Raises:
        ProblemError: exit code 3, they are missing, or the base is another one; 1, those that are there are others; 2,
            they cannot be read; 4, the device has no room.
    """
    others = []
    with explain_full_device(str(folder)):
        for where, read in param_readers(folder, task):
            params = read()
            found = params_sha256(params)
            if stated_sha256 in (None, found):
                return ShippedModel(params=params, where=where)
            others.append(f"those of {where} have {found[:12]}…")
    if others:
        if task.model.frozen and "frozen_sha256" not in manifest["model"]:
            # The hash is over adapters and base together, and an earlier version states none of the base alone.
            found, stated = params_sha256(initial_params(task)), manifest["model"]["weights_sha256"]
            if found != stated:
                raise ProblemError([other_base(manifest, "weights", stated, found, str(folder))], exit_code=3)
        what = f"The answers were given by parameters with SHA-256 {str(stated_sha256)[:12]}…; {', '.join(others)}."
        raise ProblemError([problem_of("TP058", file=str(folder), what=what)], exit_code=1)
    raise no_params(folder, task)


def no_params(folder: Path, task: Task) -> ProblemError:
    """Return the refusal of a run that holds no parameters."""
    needed = size(params_bytes(task.model.trained))
    what = (
        f"The run holds no parameters: there is no {layout.TRAINED_PARAMS}, {layout.CHECKPOINTS}/, {layout.EXPORT}/ or "
        f"{layout.ADAPTER}/ in it. What it trained has {needed}."
    )
    return ProblemError([problem_of("TP057", file=str(folder), what=what)], exit_code=3)


def param_readers(folder: Path, task: Task) -> Iterator[tuple[str, Callable[[], Params]]]:
    """Yield the places of a run that hold its parameters, and what reads each; the smallest first."""
    if (folder / layout.TRAINED_PARAMS).is_file():
        yield layout.TRAINED_PARAMS, lambda: with_frozen(kept_params(folder, task), task)
    adapter, exported = folder / layout.ADAPTER, folder / layout.EXPORT
    if task.model.adapters and adapter.is_dir():
        yield f"{layout.ADAPTER}/", lambda: with_frozen(adapter_params(adapter, task), task)
    if not task.model.adapters and exported.is_dir():
        yield f"{layout.EXPORT}/", lambda: load_params(resolve(str(exported)), with_shardings(task.model.base, task))
    if latest_step(folder) is not None:
        yield f"{layout.CHECKPOINTS}/", lambda: restored_params(folder, task)


def with_frozen(trained: Params | None, task: Task) -> Params:
    """Return trained parameters with those beside them, which are drawn or read as they were for training."""
    frozen = some_params(task, lambda name: not task.model.method.is_trained(name)) if task.model.frozen else {}
    return combine(trained or {}, frozen)


def adapter_params(folder: Path, task: Task) -> Params:
    """Return the two matrices of each adapter in a folder that PEFT could read, as they were trained.

    Where one module holds several projections, the file has their adapters side by side, and each is cut out again.
    """
    read = read_adapter(folder, task.model.source).params
    found: Params = {}
    for projections in projections_by_module(task.model.source).values():
        before = 0
        for name in (name for name in projections if name in task.model.adapters):
            rank, (first, second) = task.model.adapters[name].rank, lora_names(name)
            start = before if first in read and read[first].shape[1] != rank else 0
            found |= {first: read[first][:, start : start + rank]} if first in read else {}
            found |= {second: read[second][start : start + rank]} if second in read else {}
            before += rank
    return {name: jnp.asarray(value) for name, value in found.items()}


def restored_params(folder: Path, task: Task) -> Params:
    """Return the parameters of a run's newest checkpoint."""
    [state], frozen = restored_state(folder, task)
    return combine(state.trained, without_reference(frozen))
