"""Training objectives: what a row becomes, what a batch is, and the loss.

To add one, write a subclass of `Objective`, register it here, and add its name to `objective.kind` in
`train_config.schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from trainer.config.tree import Config
from trainer.objectives.dpo import DirectPreference
from trainer.objectives.grpo import GroupPolicy
from trainer.objectives.objective import Objective
from trainer.objectives.supervised import SupervisedLoss

OBJECTIVES: dict[str, Callable[[Config], Objective]] = {
    "supervised": SupervisedLoss.from_config,
    "dpo": DirectPreference.from_config,
    "grpo": GroupPolicy.from_config,
}
"""Constructors by `objective.kind`."""


def build_objective(config: Config) -> Objective:
    """Build the objective of a configuration.

    Raises:
        ProblemError: Exit code 2; settings have no effect on the objective, or do not fit it.
    """
    return OBJECTIVES[config.objective.kind](config)
