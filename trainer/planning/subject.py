"""Read the run that is planned: its task on a target that need not be present, and its data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from evidence.targets import Target
from schemas.problems import Problem, ProblemError
from trainer.config.tree import Config, MeshConfig
from trainer.data.answers import EvalShape
from trainer.data.rows import read_eval_set
from trainer.loop.task import Task, refuse_conflicts, shapes_mesh
from trainer.model.decoder import parameter_count
from trainer.model.model import build_model
from trainer.model.source import resolve_for_planning
from trainer.objectives import build_objective
from trainer.objectives.data import Data, read_data, read_training_rows, too_long_sequences
from trainer.planning.formula import estimate, total_bytes
from trainer.planning.memory import limit_bytes
from trainer.runtime import this_machine, too_few_devices

CHARACTERS_PER_TOKEN = 3.5
"""Assumed if the tokenizer is missing: English text has 3.5 to 4.5 characters a token, numbers fewer."""
ASSUMED_FROM_ROWS = 2_000
"""Generated rows that an assumption is based on."""
PACKED_FRACTION = 0.95
"""Assumed share of real tokens in packed sequences."""
QUICK_SECONDS = 120.0
UNKNOWN_FLOPS = 5e10
"""Assumed operations per second of a device that is not in the table: two CPU cores reach 5e10 to 2e11."""
DRAWN = (None, "completions are drawn during the run; their length is unknown")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The data of a run, which is the same for every target."""

    eval_shape: EvalShape | None
    tokens: tuple[float | None, str]
    """Share of the tokens of a step that are not padding, or None if unknown, and how it was found."""
    longest: int | None = None
    """Longest sequence of the rows, one of `task.lengths`, or None if the rows were not tokenized."""
    rows: int = 0
    """Number of rows, including generated ones."""
    warnings: tuple[Problem, ...] = ()
    overlap_warnings: tuple[Problem, ...] = ()
    """Problems of evaluation items that are also training rows."""


@dataclass(frozen=True, kw_only=True)
class Subject(Dataset):
    """A planned run."""

    task: Task

    def changed(self, config: Config) -> Subject:
        """Return the run with another configuration of the same model on the same devices."""
        return replace(self, task=self.task.changed(config))


def read_subject(config: Config, target: Target, *, say: Callable[[str], None] = lambda line: None) -> Subject:
    """Read a run that is planned for a target. No weights are read, and known models need no download.

    Raises `ProblemError` with exit code 2 and all problems of model, rows and evaluation set, or 3 for too few devices.
    """
    devices = devices_used(config, target)
    refuse_conflicts(config, platform=target.platform, devices=devices)
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices), platform=target.platform)
    if too_long := too_long_sequences(config, task.model):
        raise ProblemError(too_long, exit_code=2)
    say("reading the rows")
    return Subject(task=task, **vars(_read_dataset(replace(config, mesh=MeshConfig()))))


@lru_cache(maxsize=4)
def _read_dataset(config: Config) -> Dataset:
    """Read the data of a configuration, once for all targets."""
    model = build_model(config, resolve_for_planning(config.model.name, config.model.revision))
    if not model.source.has_tokenizer:
        return _assume_dataset(config)
    problems: list[Problem] = []
    data = read_data(config, model, build_objective(config), problems, devices=1)
    problems += data.refused if data else []
    if problems or data is None:
        raise ProblemError(problems, exit_code=2)
    return summarize_data(config, data)


def summarize_data(config: Config, data: Data) -> Dataset:
    """Return what a plan needs of tokenized data."""
    total = len(data.source.sequences) * config.data.max_length
    real = min(data.source.tokens_per_pass / total, 1.0) if total else None
    counted = (real, f"counted in {len(data.rows):,} rows with the model's tokenizer")
    return Dataset(
        eval_shape=data.eval_shape,
        tokens=DRAWN if data.objective.updates_per_rollout else counted,
        longest=max(data.source.lengths_in_use),
        rows=len(data.rows),
        warnings=data.warnings,
        overlap_warnings=data.overlap_warnings,
    )


def devices_used(config: Config, target: Target) -> int:
    """Return how many devices of a target a run uses; raise `ProblemError` with exit code 3 if there are fewer."""
    count = config.mesh.devices or target.devices
    if count > target.devices:
        problem = too_few_devices(count, target.devices, f"{target.name} has {target.devices}")
        raise ProblemError([problem], exit_code=3)
    return count


def assumed_eval_shape(config: Config) -> EvalShape | None:
    """Return the shape of the evaluation prompts with token counts assumed from characters, or None without a set."""
    if config.evaluation.eval_set is None:
        return None
    rows = read_eval_set(config.evaluation.eval_set).rows
    return EvalShape(prompts=len(rows), longest_tokens=max(_assume_counts(row["prompt"] for row in rows)))


def _assume_dataset(config: Config) -> Dataset:
    """Return the data of a model whose tokenizer is missing, with token counts assumed from characters."""
    few = min(config.data.generated_rows, ASSUMED_FROM_ROWS)
    _, rows = read_training_rows(config.changed(data={"generated_rows": few}))
    longest, how = config.data.max_length, f"assumed: {CHARACTERS_PER_TOKEN:g} characters a token in {len(rows):,} rows"
    fraction = float(np.minimum(_assume_counts(["".join(_texts(row)) for row in rows]), longest).mean() / longest)
    if config.data.packing:
        fraction, how = PACKED_FRACTION, f"{how}, sequences packed to {PACKED_FRACTION:.0%}"
    assumed = (fraction, f"{how}; the model's tokenizer is not on this machine")
    return Dataset(
        eval_shape=assumed_eval_shape(config),
        tokens=DRAWN if build_objective(config).updates_per_rollout else assumed,
        rows=len(rows) + config.data.generated_rows - few,
    )


def _assume_counts(texts: Iterable[str]) -> list[int]:
    """Return assumed token counts: `_assume_counts(["seven is"])` is `[3]`."""
    return [max(1, math.ceil(len(text) / CHARACTERS_PER_TOKEN)) for text in texts]


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a row except its metadata."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner = [one for key, one in value.items() if key != "meta"] if isinstance(value, dict) else value
        for one in inner:
            yield from _texts(one)


def resolve_shape_here(config: Config, *, device_is_stated: bool) -> Config:
    """Resolve `model.shape: auto` for this machine; a present device replaces an absent one that no flag requested.

    Raises `ProblemError` with exit code 3 if there are too few devices.
    """
    if config.model.shape != "auto":
        return config
    try:
        target = this_machine(config)
    except ProblemError:
        if device_is_stated:
            raise
        config = config.changed(mesh={"device": "auto", "devices": None})
        target = this_machine(config)
    return resolve_shape(config, target)


def resolve_shape(config: Config, target: Target) -> Config:
    """Resolve `model.shape: auto` of a smoke run: the model's own shape if it fits and is quick, or a small one.

    The choice is recorded, so that the run can be repeated anywhere. A configuration that cannot be built keeps its
    model's own shape.
    """
    if config.model.shape != "auto":
        return config
    own = config.changed(model={"shape": "own"})
    try:
        return own if _fits_and_is_quick(own, target) else shrink(own)
    except ProblemError:
        return own


def _fits_and_is_quick(config: Config, target: Target) -> bool:
    eval_shape = assumed_eval_shape(config)
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices_used(config, target)), platform=target.platform)
    parts = estimate(task, platform=target.platform, eval_shape=eval_shape)
    need = max(total_bytes(program) for name, program in parts.items() if name != "export")
    tokens = 4 * config.limits.steps * task.tokens_per_step  # forward, backward and recomputation
    if eval_shape is not None:
        evaluations = 2 if config.evaluation.baseline else 1
        answer = eval_shape.longest_tokens + config.evaluation.samples * config.evaluation.max_new_tokens
        tokens += evaluations * eval_shape.prompts * answer
    peak, limit = target.peak_flops.get(config.precision.compute), limit_bytes(task, target)
    flops = UNKNOWN_FLOPS if peak is None else task.mesh.size * peak
    return (limit is None or need <= limit) and 2 * parameter_count(task.model.base) * tokens / flops <= QUICK_SECONDS


def shrink(config: Config) -> Config:
    """Return a smoke run with a small model, and less of everything else."""

    def limited(group: str, **limits: int) -> dict[str, int]:
        return {key: min(getattr(getattr(config, group), key), limit) for key, limit in limits.items()}

    return config.changed(
        model={"shape": "small", "weights": None},
        data=limited("data", generated_rows=1_000),
        batch=limited("batch", microbatch_size=4, accumulation_steps=2),
        evaluation=limited("evaluation", max_new_tokens=16, batch_size=50),
    )
