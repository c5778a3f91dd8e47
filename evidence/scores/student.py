"""Student's t distribution: its quantile and its two-sided p-value, with the standard library only."""

from __future__ import annotations

import math
from functools import cache

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
