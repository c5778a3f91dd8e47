"""Settings that an objective does not use: refused, since they would be declared and not be true."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from schemas.formats import format_value
from schemas.problems import Problem, problem_of
from trainer.config.tree import Config, DataConfig, MemoryConfig, ObjectiveConfig


def unused_settings(config: Config, used: Iterable[str]) -> list[Problem]:
    """Return a problem for each setting of the group `objective` that differs from its default and is not used.

    Args:
        config: the run.
        used: keys of the group that the objective uses.
    """
    given = {key: value for key, value in asdict(config.objective).items() if value != getattr(ObjectiveConfig(), key)}
    return [without_effect(config, "objective", key, given[key]) for key in given if key not in {"kind", *used}]


def unused_by_pairs(config: Config) -> list[Problem]:
    """Return a problem for each setting of the group `data` that states of rows what has no meaning for pairs."""
    given = {key: getattr(config.data, key) for key in ("kind", "supervise")}
    return [
        without_effect(config, "data", key, given[key]) for key in given if given[key] != getattr(DataConfig(), key)
    ]


def unused_by_rollouts(config: Config) -> list[Problem]:
    """Return a problem for each setting of rows and layers that has no meaning where completions are drawn."""
    groups = {
        "data": (config.data, DataConfig(), ("kind", "supervise", "buckets")),
        "memory": (config.memory, MemoryConfig(), ("layers",)),
    }
    return [
        without_effect(config, group, key, getattr(given, key))
        for group, (given, usual, keys) in groups.items()
        for key in keys
        if getattr(given, key) not in (getattr(usual, key), "unrolled")
    ]


def without_effect(config: Config, group: str, key: str, value: Any) -> Problem:
    """Return the problem of a setting that the objective does not use."""
    what = f"{group}.{key} is {format_value(value)}, which objective.kind {config.objective.kind} does not use."
    return problem_of("TP078", file=config.name, pointer=f"/{group}/{key}", what=what)
