"""What is planned: the task on a target that need not be here, and how many of its tokens are real."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from evidence.targets import Target
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.data.conversations import row_prompt
from trainer.data.rows import read_eval_set
from trainer.loop.attending import cannot_attend
from trainer.loop.layout import cannot_stack
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.methods.model import Model, model_of
from trainer.model.files.known import planned_source
from trainer.objectives import build_objective
from trainer.objectives.data import Data, read_data, read_training_rows, too_long_sequences
from trainer.objectives.settings import find_contradictions
from trainer.planning.remat import with_remat

CHARACTERS_A_TOKEN = 3.5
"""Assumed where a model's tokenizer is not here: English text has 3.5 to 4.5 characters a token, numbers fewer."""

ASSUMED_FROM_ROWS = 2_000
"""Generated rows that an assumption is made of; more of the same generator say the same."""

PACKED_FRACTION = 0.95
"""Share of real tokens assumed of packed sequences."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """How many of a step's tokens are real."""

    real_fraction: float | None
    """Share of tokens that are not padding. None: the rows could not be read."""
    source: str
    """Counted or assumed, and how."""


UNKNOWN_TOKENS = Tokens(real_fraction=None, source="completions are drawn; how long they are shows the run")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run as it is planned."""

    task: Task
    asked: EvalShape | None
    tokens: Tokens
    longest: int | None = None
    """Tokens of the longest sequences that the rows need, of `task.lengths`. None: the rows were not counted."""
    rows: int = 0
    """Of the dataset, generated ones among them."""
    warnings: tuple[Problem, ...] = ()
    seen: tuple[Problem, ...] = ()
    """About evaluation items that the model is taught."""

    def changed(self, config: Config) -> Subject:
        """Return the run under another configuration of the same model, on the same devices."""
        return replace(self, task=self.task.changed(config))


def subject_of(config: Config, target: Target, *, say: Callable[[str], None] = lambda line: None) -> Subject:
    """Return what is planned of a configuration on a target. No weight is read; no login is needed for known models.

    Raises:
        ProblemError: exit code 2; all that is wrong with model, rows and evaluation set.
    """
    devices = devices_used(config, target)
    refused = (*cannot_stack(config, devices=devices), *cannot_attend(config, platform=target.platform))
    if problems := [*find_contradictions(config), *refused]:
        raise ProblemError(problems, exit_code=2)
    source = planned_source(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices), platform=target.platform)
    task = with_remat(task, available_bytes=target.memory_bytes)
    if too_long := too_long_sequences(config, task.model):
        raise ProblemError(too_long, exit_code=2)
    say("reading the rows")
    read = _dataset_shape(replace(config, mesh=type(config.mesh)()))
    return Subject(
        task=task,
        asked=read.asked,
        tokens=read.tokens,
        longest=read.longest,
        rows=read.rows,
        warnings=read.warnings,
        seen=read.seen,
    )


@dataclass(frozen=True, kw_only=True)
class DatasetShape:
    """What is read of the rows, the same for every target."""

    asked: EvalShape | None
    tokens: Tokens
    longest: int | None = None
    rows: int = 0
    warnings: tuple[Problem, ...] = ()
    seen: tuple[Problem, ...] = ()


@lru_cache(maxsize=4)
def _dataset_shape(config: Config) -> DatasetShape:
    """Return what the rows of a configuration say; read once for all targets.

    Raises:
        ProblemError: exit code 2; all that is wrong with rows and evaluation set.
    """
    model = model_of(config, planned_source(config.model.name, config.model.revision))
    if not has_tokenizer(model):
        tokens, rows = assumed_tokens(config)
        return DatasetShape(asked=assumed_asked(config), tokens=tokens, rows=rows)
    problems: list[Problem] = []
    data = read_data(config, model, build_objective(config), problems, devices=1)
    problems += data.refused if data else []
    if problems or data is None:
        raise ProblemError(problems, exit_code=2)
    return DatasetShape(
        asked=data.asked,
        tokens=counted_tokens(config, data),
        longest=max(data.source.lengths_in_use),
        rows=len(data.rows),
        warnings=data.warnings,
        seen=data.seen,
    )


def devices_used(config: Config, target: Target) -> int:
    """Return how many of a target's devices a run uses.

    Raises:
        ProblemError: exit code 3; it asks for more than there are.
    """
    if config.mesh.devices is None or config.mesh.devices <= target.devices:
        return config.mesh.devices or target.devices
    what = f"mesh.devices asks for {config.mesh.devices} devices; {target.name} has {target.devices}."
    advice = f"Use --set mesh.devices={target.devices}, or leave it out to use all of them."
    problem = problem_of(
        "TP702", file="mesh.devices", what=what, why=None, expected=f"at most {target.devices}", next=advice
    )
    raise ProblemError([problem], exit_code=3)


def has_tokenizer(model: Model) -> bool:
    """Return whether the model's tokenizer is on this machine."""
    return model.source.has_tokenizer


def counted_tokens(config: Config, data: Data) -> Tokens:
    """Return the share of real tokens as the rows have it."""
    if build_objective(config).updates_per_rollout:
        return UNKNOWN_TOKENS
    longest = config.data.max_length
    total = len(data.source.sequences) * longest
    real = min(data.source.tokens_per_pass / total, 1.0) if total else None
    return Tokens(real_fraction=real, source=f"counted in {len(data.rows):,} rows with the model's tokenizer")


def assumed_asked(config: Config) -> EvalShape | None:
    """Return what an evaluation set asks, its tokens assumed of its characters.

    Raises:
        ProblemError: exit code 2; it cannot be read.
    """
    if config.evaluation.eval_set is None:
        return None
    rows = read_eval_set(config.evaluation.eval_set).rows
    return EvalShape(prompts=len(rows), longest_tokens=max(assumed_count([row["prompt"] for row in rows])))


def assumed_tokens(config: Config) -> tuple[Tokens, int]:
    """Return the share of real tokens, those of each row assumed of its characters, and how many rows there are.

    Raises:
        ProblemError: exit code 2; the rows cannot be read.
    """
    few = min(config.data.generated_rows, ASSUMED_FROM_ROWS)
    _, rows = read_training_rows(replace(config, data=replace(config.data, generated_rows=few)))
    count = len(rows) + config.data.generated_rows - few
    if build_objective(config).updates_per_rollout:
        return UNKNOWN_TOKENS, count
    longest = config.data.max_length
    counts = np.minimum(assumed_count([text_of(row) for row in rows]), longest)
    fraction = PACKED_FRACTION if config.data.packing else float(counts.mean() / longest)
    how = f"assumed: {CHARACTERS_A_TOKEN:g} characters a token in {len(rows):,} rows"
    if config.data.packing:
        how += f", sequences packed to {PACKED_FRACTION:.0%}"
    return Tokens(real_fraction=fraction, source=f"{how}; the model's tokenizer is not on this machine"), count


def assumed_count(texts: Sequence[str]) -> list[int]:
    """Return the tokens that texts may have: `assumed_count(["seven is"])` is `[3]`."""
    return [max(1, math.ceil(len(text) / CHARACTERS_A_TOKEN)) for text in texts]


def text_of(row: dict[str, Any]) -> str:
    """Return all words of a row, whatever its shape."""
    return row_prompt(row) + " ".join(
        _texts({key: value for key, value in row.items() if key not in ("prompt", "meta")})
    )


def _texts(value: Any) -> list[str]:
    """Return the texts inside a value."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []
