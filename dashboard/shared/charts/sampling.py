"""Fewer points for a chart, without losing an extreme; smoothed ones; and the range of an axis.

A stride or a random sample drops one-step spikes, which are what a reader of a loss curve looks for. Here each bucket
of steps keeps its smallest and its largest value, in their order: no drawn line is smoother than the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLIPPED = (1.0, 99.0)
"""Percentiles between which the values lie that are in range when outliers are left out."""

_HARDLY = 0.01
"""Share of a value by which others differ hardly from it."""

POINTS = 4000
"""Points drawn at most for a series; a screen is about as wide."""


def thin_out(values: np.ndarray, points: int = POINTS) -> np.ndarray:
    """Return the indices to draw: first, last, and the minimum and maximum of each of `points / 2` equal buckets.

    For values `[3, 1, 2, 9, 2, 2]` and 4 points the two buckets are `[3, 1, 2]` and `[9, 2, 2]`; the indices are
    `[0, 1, 3, 4, 5]`: extremes, and the last point. Non-finite values are never an extreme; a bucket that holds nothing
    else keeps its first index, so that the gap in the line stays.

    Args:
        values: `[steps]`, any numbers, NaN where nothing was measured.
        points: At least 2; the result has at most `points` + 2 indices.

    Returns:
        `[kept]` increasing indices into `values`; all of them if there are at most `points`.
    """
    size = len(values)
    if size <= points:
        return np.arange(size)
    buckets = points // 2
    edges = np.linspace(0, size, buckets + 1).astype(np.int64)
    width = int(np.diff(edges).max())
    # Buckets differ by one in width; the missing cell of a narrow one repeats its last index, which changes no extreme.
    cells = np.minimum(edges[:-1, None] + np.arange(width)[None, :], edges[1:, None] - 1)
    block = values[cells].astype(np.float64)
    finite = np.isfinite(block)
    rows = np.arange(buckets)
    lowest = cells[rows, np.where(finite, block, np.inf).argmin(axis=1)]
    highest = cells[rows, np.where(finite, block, -np.inf).argmax(axis=1)]
    return np.unique(np.concatenate([[0], lowest, highest, [size - 1]]))


def moving_average(values: np.ndarray, weight: float) -> np.ndarray:
    """Return an exponential moving average to both sides, which does not lag behind values that fall.

    A value that lies `k` steps away counts `w ** k`: `s_t = sum_k w^|k| x_(t+k) / sum_k w^|k|`. For `[1, 2, 3]` and
    weight 0.5: `[1.571, 2, 2.429]`. A value that is not finite stays as it is and does not touch the average.

    Args:
        values: `[steps]`.
        weight: From 0 (the values themselves) up to but not including 1.

    Returns:
        `[steps]`, float64.
    """
    result = values.astype(np.float64)
    finite = np.isfinite(result)
    own = result[finite]
    if weight <= 0 or not len(own):
        return result
    before, after = _moving_average(own, weight), _moving_average(own[::-1], weight)[::-1]
    # What each of the two one-sided averages weighs; both have the value itself.
    weights = (1 - weight ** np.arange(1, len(own) + 1, dtype=np.float64)) / (1 - weight)
    result[finite] = (before * weights + after * weights[::-1] - own) / (weights + weights[::-1] - 1)
    return result


def _moving_average(values: np.ndarray, weight: float) -> np.ndarray:
    """Return the corrected average of finite values, in blocks so short that `weight ** -n` stays finite."""
    block = max(1, int(500 / -np.log(weight)))
    averages = np.empty_like(values)
    carried = 0.0
    for start in range(0, len(values), block):
        part = values[start : start + block]
        powers = weight ** np.arange(1, len(part) + 1)
        averages[start : start + block] = powers * (carried + (1 - weight) * np.cumsum(part / powers))
        carried = averages[start + len(part) - 1]
    corrections = 1 - weight ** np.arange(1, len(values) + 1, dtype=np.float64)
    return averages / corrections


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


def widen(values: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Return a range around values that hardly differ, whose ticks would need more digits than an axis has room for."""
    finite = np.concatenate([array[np.isfinite(array)] for array in values])
    if not len(finite):
        return None, None
    low, high = float(finite.min()), float(finite.max())
    margin = _HARDLY * max(abs(low), abs(high))
    return (low - margin, high + margin) if 0 < high - low < margin else (None, None)


def count_outside(values: Sequence[np.ndarray], low: float | None, high: float | None) -> int:
    """Return how many values lie outside a range; none where there is no range."""
    if low is None or high is None:
        return 0
    return sum(int(np.count_nonzero((array < low) | (array > high))) for array in values)
