"""How sure a score is: intervals, the paired test, the smallest difference a set of items can show.

Levels, p-values and differences are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class PairedTable:
    """How two runs answered the same items."""

    both: int
    """Items that both runs answered correctly."""
    only_first: int
    """Items that only the first run answered correctly (the discordant count b)."""
    only_second: int
    """Items that only the second run answered correctly (the discordant count c)."""
    neither: int
    """Items that neither run answered correctly."""

    @property
    def items(self) -> int:
        """Number of items."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Score of the second run minus score of the first: (c - b) / n."""
        return (self.only_second - self.only_first) / self.items


def wilson_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion.

    `(p + z²/2n ± z sqrt(p (1 − p)/n + z²/4n²)) / (1 + z²/n)` with `p = successes / n` and z the normal quantile of
    `(1 + level) / 2` (E. B. Wilson, JASA 22, 1927, p. 209–212). Unlike `p ± 2 s.e.` it keeps its level near 0 and 1 and
    for small n.

    For 8 of 10 at 95 %: `(0.4902, 0.9433)`. For 0 of 10: `(0, 0.2775)`.

    Args:
        successes: Items that count as correct, 0 to n.
        n: Items, at least 1.
        level: Confidence level, strictly between 0 and 1.

    Returns:
        Lower and upper end, each from 0 to 1.

    Raises:
        ValueError: n is below 1, or successes or level are out of range.
    """
    if n < 1 or not 0 <= successes <= n:
        message = f"wilson_interval needs 0 <= successes <= n and n >= 1; got successes={successes}, n={n}"
        raise ValueError(message)
    return wilson_with(successes / n, n, _quantile(level))


def wilson_with(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's interval for a share of n items, which need not be a whole number, with another quantile than z.

    Items in groups are worth fewer than they are (`evidence.scores.clusters`).
    """
    square = quantile * quantile
    centre = share + square / (2 * n)
    half_width = quantile * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    scale = 1 + square / n
    # At the ends the formula is exactly 0 or 1; rounding would leave 1e-17.
    low = 0.0 if share == 0 else (centre - half_width) / scale
    high = 1.0 if share == 1 else (centre + half_width) / scale
    return low, high


def standard_error(successes: int, n: int) -> float:
    """Return the standard error of a proportion, `sqrt(p (1 − p) / n)` with `p = successes / n`.

    For 8 of 10: `sqrt(0.8 · 0.2 / 10) = 0.1265`. n must be at least 1.
    """
    share = successes / n
    return math.sqrt(share * (1 - share) / n)


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p-value of McNemar's test.

    If the two runs are equally good, each discordant item falls to either side with probability ½, so
    `p = min(1, 2 · P(X ≤ min(b, c)))` for X binomial with b + c trials (Q. McNemar, Psychometrika 12, 1947; exact
    form as in A. Agresti, Categorical Data Analysis, 3rd ed., §11.1.2). Items that both or neither answered mean
    nothing about the difference.

    For b = 1, c = 7: `2 · (1 + 8) / 2⁸ = 0.0703`. Without discordant items: 1.

    Args:
        only_first: Items that only the first run answered correctly, at least 0.
        only_second: Items that only the second run answered correctly, at least 0.

    Returns:
        The p-value, from 0 to 1.
    """
    trials = only_first + only_second
    tail = sum(math.comb(trials, k) for k in range(min(only_first, only_second) + 1))
    # Whole numbers until here: a tail of 2000 trials would underflow as floats.
    return min(1.0, 2 * tail / (1 << trials))


def paired_difference_interval(table: PairedTable, level: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval of the difference of two scores on the same items, second minus first.

    The ends are the differences D at which the score statistic equals ±z:
    `(c − b − n D) / sqrt(n (2 q + D (1 − D))) = ±z`, where q, the probability that only the first run is right, is
    estimated under D as `q = (sqrt(B² − 4AC) − B) / 2A` with `A = 2n`, `B = −b − c + (2n − c + b) D` and
    `C = −b D (1 − D)` (T. Tango, Statistics in Medicine 17, 1998, p. 891–908). It keeps its level for few items and
    for scores near 0 and 1, where the usual `difference ± z s.e.` does not; at D = 0 it is McNemar's test without
    correction.

    For 21 items, both 1, only first 1, only second 7, neither 12: difference 0.286, interval `(0.026, 0.517)`.

    Args:
        table: Counts of at least one item.
        level: Confidence level, strictly between 0 and 1.

    Returns:
        Lower and upper end, each from −1 to 1.
    """
    z = _quantile(level)
    low = _crossing(table, z, -1.0, table.difference)
    high = _crossing(table, -z, table.difference, 1.0)
    return low, high


def minimum_detectable_difference(
    items: int, discordant: int, *, level: float = 0.95, power: float = 0.8
) -> float | None:
    """Return the smallest true difference that McNemar's test on this many items would find with the given power.

    It solves `n D² = (z_level sqrt(ψ) + z_power sqrt(ψ − D²))²` for D (R. J. Connor, Biometrics 43, 1987, p. 207–211),
    where ψ is the share of items on which the runs differ. A true difference D needs at least D of the items to differ,
    so ψ is the larger of the observed share and D. The formula is for large samples; the exact test finds a bit less,
    and nothing at all where even n items that all differ to one side give `2 · 2⁻ⁿ` above 1 − level.

    For 100 items of which 20 differ: 0.124. For 1,319 items of which 200 differ: 0.030.

    Args:
        items: Items that both runs answered, at least 1.
        discordant: Items that exactly one run answered correctly.
        level: Confidence level of the test.
        power: Probability of finding the difference.

    Returns:
        The difference, from 0 to 1. None: no difference can be found with so few items.
    """
    z_level, z_power = _quantile(level), NormalDist().inv_cdf(power)
    observed = discordant / items

    def is_found(difference: float) -> bool:
        share = max(observed, difference)
        needed = z_level * math.sqrt(share) + z_power * math.sqrt(share - difference * difference)
        return math.sqrt(items) * difference >= needed

    if mcnemar_exact(0, items) > 1 - level or not is_found(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for having made several comparisons, in the order given.

    With the values sorted, the i-th of m (from 0) becomes `max over j ≤ i of min(1, (m − j) p_j)`
    (S. Holm, Scandinavian Journal of Statistics 6, 1979). The chance of any false find among all stays at the level.

    For `[0.01, 0.04, 0.03]`: `[0.03, 0.06, 0.06]`.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _quantile(level: float) -> float:
    """Return z such that a standard normal value lies within ±z with probability `level`; 1.95996 for 0.95."""
    return NormalDist().inv_cdf((1 + level) / 2)


def _crossing(table: PairedTable, target: float, low: float, high: float) -> float:
    """Return where the score statistic, which falls as the difference grows, passes `target`.

    Where it never does, this is an end of the range.
    """
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _score(table, middle) > target else (low, middle)
    return (low + high) / 2


def _score(table: PairedTable, difference: float) -> float:
    """Return Tango's score statistic at an assumed difference; its sign alone where no variance is left."""
    n, b, c = table.items, table.only_first, table.only_second
    distance = c - b - n * difference
    linear = -b - c + (2 * n - c + b) * difference
    constant = -b * difference * (1 - difference)
    share = (math.sqrt(max(0.0, linear * linear - 8 * n * constant)) - linear) / (4 * n)
    variance = n * (2 * share + difference * (1 - difference))
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)
