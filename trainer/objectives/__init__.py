"""Toward what a model is trained: one file an objective, all of them in `OBJECTIVES`.

A further objective is a file here, an entry below and a value of `objective.kind` in `train_config.schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from trainer.config.tree import Config
from trainer.objectives.grpo import grpo_of
from trainer.objectives.objective import Objective
from trainer.objectives.preference import dpo_of
from trainer.objectives.supervised import supervised_of

OBJECTIVES: dict[str, Callable[[Config], Objective]] = {
    "supervised": supervised_of,
    "dpo": dpo_of,
    "grpo": grpo_of,
}
"""By `objective.kind`: what makes the objective of a configuration."""


def objective_of(config: Config) -> Objective:
    """Return the objective that a configuration names."""
    return OBJECTIVES[config.objective.kind](config)
