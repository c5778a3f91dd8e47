"""How sure a mean is: Student's interval for many values, a bootstrap for few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, stdev
from typing import Literal

_TINY = 1e-300
_MOST_TERMS = 500


@cache
def t_quantile(level: float, degrees: int) -> float:
    """Return t such that a value of Student's distribution lies within ±t with probability `level`.

    For level 0.95: 12.706 with 1 degree of freedom, 2.0452 with 29, 1.9600 with very many.

    Args:
        level: Strictly between 0 and 1.
        degrees: Degrees of freedom, at least 1.
    """
    low, high = 0.0, 1.0
    while t_p_value(high, degrees) > 1 - level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, degrees) > 1 - level else (low, middle)
    return high


def t_p_value(t: float, degrees: int) -> float:
    """Return the probability of a value of Student's distribution at least as far from 0 as `t`, on either side.

    It is `I_x(ν/2, 1/2)` with `x = ν / (ν + t²)`, the regularised incomplete beta function (Abramowitz and Stegun,
    Handbook of Mathematical Functions, 26.7.1). For t = 2.0452 with 29 degrees of freedom: 0.05.
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return `I_x(a, b)` for x from 0 to 1, by the continued fraction of the Handbook, 26.5.8."""
    if x in {0.0, 1.0}:
        return x
    if x > (a + 1) / (a + b + 2):  # where the fraction for the other tail converges faster
        return 1 - _incomplete_beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction `1 + d₁ / (1 + d₂ / (1 + …))` by Lentz's method."""
    value = front = 1.0
    back = 0.0
    for term in range(1, _MOST_TERMS):
        half = term // 2
        if term % 2:
            step = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            step = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        back = 1 / (1 + step * back or _TINY)
        front = 1 + step / front or _TINY
        value *= back * front
        if abs(back * front - 1) < 1e-15:
            break
    return value


MANY = 30
"""From so many values on, the mean is taken as normal whatever the values are."""
RESAMPLES = 9_999
"""Resamples of the bootstrap: odd, so that with its ends the 95 % interval falls on whole ranks."""
SEED = 20261121
"""The same values give the same interval."""

Method = Literal["t", "bca bootstrap", "clustered t"]


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """A mean and how sure it is."""

    mean: float
    """Mean of the values."""
    standard_error: float | None
    """Its standard error. None: there is one value alone."""
    low: float | None
    """Lower end of the interval. None: there is one value, or one group, alone."""
    high: float | None
    """Upper end of the interval."""
    method: Method | None
    """How the interval was made."""
    n: int
    """Values."""


def mean_interval(values: Sequence[float], level: float = 0.95) -> MeanInterval:
    """Return the mean of independent values with its interval: Student's from 30 values on, else a BCa bootstrap.

    For 1, 2, …, 30: 15.5 with `15.5 ± 2.0452 · 8.8034 / √30 = (12.213, 18.787)`.

    Args:
        values: At least one.
        level: Confidence level, strictly between 0 and 1.
    """
    n, mean = len(values), fmean(values)
    if n == 1:
        return MeanInterval(mean=mean, standard_error=None, low=None, high=None, method=None, n=n)
    error = stdev(values) / math.sqrt(n)
    if n >= MANY:
        reach = t_quantile(level, n - 1) * error
        return MeanInterval(mean=mean, standard_error=error, low=mean - reach, high=mean + reach, method="t", n=n)
    low, high = bca_interval(values, level)
    return MeanInterval(mean=mean, standard_error=error, low=low, high=high, method="bca bootstrap", n=n)


def bca_interval(
    values: Sequence[float], level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Return the bootstrap interval of a mean, corrected for bias and acceleration (BCa).

    The ends are the quantiles `Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z)))` of the means of resamples, with z the normal
    quantiles of the two ends, z₀ the normal quantile of the share of resampled means below the mean, and a the
    acceleration, `Σ (m̄ − mᵢ)³ / 6 (Σ (m̄ − mᵢ)²)^1.5` over the means mᵢ without value i (B. Efron, JASA 82, 1987).
    It leans to the side to which the values do. With few values it is somewhat too narrow: measured, 0.88 to 0.93 at
    n = 10 to 20 where 0.95 is meant, depending on how skewed the values are.

    Args:
        values: At least two.
        level: Confidence level, strictly between 0 and 1.
        resamples: How many resamples are drawn.
        seed: Seed of the draw.
    """
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    n, mean = len(data), data.mean()
    drawn = np.random.default_rng(seed).integers(0, n, size=(resamples, n))
    means = np.sort(data[drawn].mean(axis=1))
    normal = NormalDist()
    # Ties count half; a share of exactly 0 or 1 has no quantile.
    below = (np.sum(means < mean) + np.sum(means <= mean)) / 2
    bias = normal.inv_cdf(min(max(float(below), 0.5), resamples - 0.5) / resamples)
    without = (n * mean - data) / (n - 1)
    spread = without.mean() - without
    scale = float((spread**2).sum()) ** 1.5
    acceleration = float((spread**3).sum()) / (6 * scale) if scale else 0.0

    def end(z: float) -> float:
        share = normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        return float(means[min(max(round(share * (resamples + 1)) - 1, 0), resamples - 1)])

    z = normal.inv_cdf((1 + level) / 2)
    return end(-z), end(z)
