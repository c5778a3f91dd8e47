"""From the rewards of groups to advantages: how much better a completion is than the others to the same prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Scale = Literal["group", "batch", "none"]
EPSILON = 1e-4
"""Added to the standard deviation that is divided by, as in TRL."""


def advantages(rewards: Sequence[Sequence[float]], scale: Scale) -> list[list[float]]:
    """Return each reward less the mean of its group, divided as `scale` states.

    A group in which all rewards are equal has only zeros.

    Args:
        rewards: of the groups of a step, finite.
        scale: group: by the standard deviation of the group (of n - 1) plus 1e-4. batch: by that of all rewards of the
            step. none: by nothing.

    >>> advantages([[1, 0, 0, 1]], "group")[0][0], advantages([[1, 0], [1, 1]], "none")
    (0.8658754297..., [[0.5, -0.5], [0.0, 0.0]])
    """
    if scale == "batch":
        divisor = deviation([reward for group in rewards for reward in group]) + EPSILON
    found = []
    for group in rewards:
        if not has_spread(group):
            found.append([0.0] * len(group))
            continue
        mean = math.fsum(group) / len(group)
        by = 1.0 if scale == "none" else divisor if scale == "batch" else deviation(group) + EPSILON
        found.append([(reward - mean) / by for reward in group])
    return found


def has_spread(group: Sequence[float]) -> bool:
    """Return whether the rewards of a group differ; without that it teaches nothing."""
    return len(group) > 0 and min(group) < max(group)


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample (of n - 1); 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
