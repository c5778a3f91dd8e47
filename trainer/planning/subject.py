"""Read the run that is planned: its task on a target that need not be present, and its data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from evidence.targets import Target
from schemas.problems import Problem, ProblemError
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.data.conversations import row_prompt
from trainer.data.rows import read_eval_set
from trainer.loop.attending import cannot_attend
from trainer.loop.layout import cannot_stack
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.model import build_model
from trainer.model.source import resolve_for_planning
from trainer.objectives import build_objective, find_contradictions
from trainer.objectives.data import Data, read_data, read_training_rows, too_long_sequences
from trainer.runtime import too_few_devices

CHARACTERS_PER_TOKEN = 3.5
"""Assumed if the tokenizer is missing: English text has 3.5 to 4.5 characters a token, numbers fewer."""
ASSUMED_FROM_ROWS = 2_000
"""Generated rows that an assumption is based on."""
PACKED_FRACTION = 0.95
"""Assumed share of real tokens in packed sequences."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Share of the tokens of a step that are not padding, or None if unknown, and where it is from."""

    real_fraction: float | None
    source: str


UNKNOWN_TOKENS = Tokens(real_fraction=None, source="completions are drawn during the run; their length is unknown")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The data of a run, which is the same for every target.

    Attributes:
        asked: Shape of the evaluation prompts, or None if nothing is evaluated.
        longest: Longest sequence of the rows, one of `task.lengths`, or None if the rows were not tokenized.
        rows: Rows of the dataset, including generated ones.
        warnings: Problems of rows.
        seen: Problems of evaluation items that are also training rows.
    """

    asked: EvalShape | None
    tokens: Tokens
    longest: int | None = None
    rows: int = 0
    warnings: tuple[Problem, ...] = ()
    seen: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subject(Dataset):
    """A planned run."""

    task: Task

    def changed(self, config: Config) -> Subject:
        """Return the run with another configuration of the same model on the same devices."""
        return replace(self, task=self.task.changed(config))


def read_subject(config: Config, target: Target, *, say: Callable[[str], None] = lambda line: None) -> Subject:
    """Read a run that is planned for a target. No weights are read, and known models need no download.

    Raises:
        ProblemError: Exit code 2; everything that is wrong with model, rows and evaluation set. Exit code 3; too few
            devices.
    """
    devices = devices_used(config, target)
    refused = (*cannot_stack(config, devices=devices), *cannot_attend(config, platform=target.platform))
    if problems := [*find_contradictions(config), *refused]:
        raise ProblemError(problems, exit_code=2)
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices), platform=target.platform)
    if too_long := too_long_sequences(config, task.model):
        raise ProblemError(too_long, exit_code=2)
    say("reading the rows")
    return Subject(task=task, **vars(_read_dataset(replace(config, mesh=type(config.mesh)()))))


@lru_cache(maxsize=4)
def _read_dataset(config: Config) -> Dataset:
    """Read the data of a configuration, once for all targets.

    Raises:
        ProblemError: Exit code 2; everything that is wrong with rows and evaluation set.
    """
    model = build_model(config, resolve_for_planning(config.model.name, config.model.revision))
    if not model.source.has_tokenizer:
        tokens, rows = assumed_tokens(config)
        return Dataset(asked=assumed_asked(config), tokens=tokens, rows=rows)
    problems: list[Problem] = []
    data = read_data(config, model, build_objective(config), problems, devices=1)
    problems += data.refused if data else []
    if problems or data is None:
        raise ProblemError(problems, exit_code=2)
    return summarize_data(config, data)


def summarize_data(config: Config, data: Data) -> Dataset:
    """Return what a plan needs of data that was read."""
    return Dataset(
        asked=data.asked,
        tokens=counted_tokens(config, data),
        longest=max(data.source.lengths_in_use),
        rows=len(data.rows),
        warnings=data.warnings,
        seen=data.seen,
    )


def devices_used(config: Config, target: Target) -> int:
    """Return how many devices of a target a run uses.

    Raises:
        ProblemError: Exit code 3; there are fewer devices.
    """
    count = config.mesh.devices or target.devices
    if count > target.devices:
        problem = too_few_devices(count, target.devices, f"{target.name} has {target.devices}")
        raise ProblemError([problem], exit_code=3)
    return count


def counted_tokens(config: Config, data: Data) -> Tokens:
    """Return the share of real tokens in tokenized rows."""
    if build_objective(config).updates_per_rollout:
        return UNKNOWN_TOKENS
    longest = config.data.max_length
    total = len(data.source.sequences) * longest
    real = min(data.source.tokens_per_pass / total, 1.0) if total else None
    return Tokens(real_fraction=real, source=f"counted in {len(data.rows):,} rows with the model's tokenizer")


def assumed_asked(config: Config) -> EvalShape | None:
    """Return the shape of the evaluation prompts with token counts assumed from characters, or None without a set."""
    if config.evaluation.eval_set is None:
        return None
    rows = read_eval_set(config.evaluation.eval_set).rows
    return EvalShape(prompts=len(rows), longest_tokens=max(assumed_count([row["prompt"] for row in rows])))


def assumed_tokens(config: Config) -> tuple[Tokens, int]:
    """Return the share of real tokens, assumed from the characters of the rows, and the number of rows."""
    few = min(config.data.generated_rows, ASSUMED_FROM_ROWS)
    _, rows = read_training_rows(replace(config, data=replace(config.data, generated_rows=few)))
    count = len(rows) + config.data.generated_rows - few
    if build_objective(config).updates_per_rollout:
        return UNKNOWN_TOKENS, count
    longest = config.data.max_length
    counts = np.minimum(assumed_count([row_text(row) for row in rows]), longest)
    fraction = PACKED_FRACTION if config.data.packing else float(counts.mean() / longest)
    how = f"assumed: {CHARACTERS_PER_TOKEN:g} characters a token in {len(rows):,} rows"
    if config.data.packing:
        how += f", sequences packed to {PACKED_FRACTION:.0%}"
    return Tokens(real_fraction=fraction, source=f"{how}; the model's tokenizer is not on this machine"), count


def assumed_count(texts: Sequence[str]) -> list[int]:
    """Return assumed token counts: `assumed_count(["seven is"])` is `[3]`."""
    return [max(1, math.ceil(len(text) / CHARACTERS_PER_TOKEN)) for text in texts]


def row_text(row: dict[str, Any]) -> str:
    """Return all text of a row, whatever its shape."""
    return row_prompt(row) + " ".join(
        _texts({key: value for key, value in row.items() if key not in ("prompt", "meta")})
    )


def _texts(value: Any) -> list[str]:
    """Return all strings in a value."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []
