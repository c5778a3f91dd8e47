"""From where to where an axis of values goes, where the values alone would not make a good one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLIPPED = (1.0, 99.0)
"""Percentiles between which the values lie that are in range when outliers are left out."""

_HARDLY = 0.01
"""Share of a value by which others differ hardly from it."""


def middle(values: Sequence[np.ndarray], *, log: bool) -> tuple[float | None, float | None]:
    """Return the ends of the range without outliers, None twice where all values are one."""
    finite = np.concatenate([array[np.isfinite(array)] for array in values])
    if not len(finite):
        return None, None
    low, high = (float(end) for end in np.percentile(finite, CLIPPED))
    if low == high:
        return None, None
    if log:
        return low * (low / high) ** 0.05, high * (high / low) ** 0.05
    margin = 0.05 * (high - low)
    return (max(0.0, low - margin) if low >= 0 else low - margin), high + margin


def room(values: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Return a range around values that hardly differ, whose ticks would need more digits than an axis has room for."""
    finite = np.concatenate([array[np.isfinite(array)] for array in values])
    if not len(finite):
        return None, None
    low, high = float(finite.min()), float(finite.max())
    margin = _HARDLY * max(abs(low), abs(high))
    return (low - margin, high + margin) if 0 < high - low < margin else (None, None)


def outside(values: Sequence[np.ndarray], low: float | None, high: float | None) -> int:
    """Return how many values lie outside a range; none where there is no range."""
    if low is None or high is None:
        return 0
    return sum(int(np.count_nonzero((array < low) | (array > high))) for array in values)
