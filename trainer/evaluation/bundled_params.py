"""The parameters that a run or its bundle holds, found to be those that gave its stated answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from evidence.run import layout
from schemas.names import MODELS
from schemas.problems.formats import size
from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.config.tree import Config
from trainer.loop.base import other_base
from trainer.loop.initial import initial_params, restored_state, some_params
from trainer.loop.restoring import latest_step
from trainer.loop.state import with_shardings
from trainer.loop.task import Task, without_reference
from trainer.loop.trained_params import kept_params, params_bytes
from trainer.methods.method import combine
from trainer.model.adapters.names import modules
from trainer.model.adapters.reading import read_adapter
from trainer.model.files.loading import load_params
from trainer.model.files.source import ModelSource, of_somebody_else, resolve
from trainer.model.lora import lora_names
from trainer.model.params import Params, params_sha256
from trainer.recorder.failure import explain_full_device

NO_PARAMS = Rule(
    "TP057",
    "No parameters to question",
    "Only the model itself can answer questions that its maker has not seen.",
    "Ask whoever made the run for `trainproof package RUN --with-weights`.",
)
OTHER_PARAMS = Rule(
    "TP058",
    "Parameters that did not give the answers",
    "The evaluation states the hash of the parameters that answered; what is here has another.",
    "Ask for the parameters of this run, or for the base model it names; --model takes a folder with it.",
)


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
        raise of_somebody_else(error) from error


