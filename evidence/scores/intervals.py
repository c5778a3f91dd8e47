"""Confidence intervals and tests for scores and means, of independent items and of items in clusters.

Levels, p-values, shares and differences are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean
from typing import Any, Literal

_Z, _Z_POWER = (NormalDist().inv_cdf(p) for p in (0.975, 0.8))
"""Normal quantiles of a two-sided 95 % interval, and of a power of 80 %."""
_ROUNDING = 1e-12
"""A standard error below this fraction of the largest value is a rounding error: all clusters are alike."""


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Compute the 95 % Wilson score interval of a proportion: `(0.4902, 0.9433)` for 8 of 10.

    `(p + z²/2n ± z sqrt(p (1 − p)/n + z²/4n²)) / (1 + z²/n)` with the normal quantile z (E. B. Wilson, JASA 22, 1927,
    p. 209–212). It keeps its level near 0 and 1. Raises ValueError unless `0 <= successes <= n` and `n >= 1`.
    """
    if n < 1 or not 0 <= successes <= n:
        message = f"wilson_interval needs 0 <= successes <= n and n >= 1; got successes={successes}, n={n}"
        raise ValueError(message)
    return _wilson(successes / n, n, _Z)


def _wilson(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Compute Wilson's interval for an effective number of items, which need not be whole, and any quantile."""
    square = quantile * quantile
    centre = share + square / (2 * n)
    half_width = quantile * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    scale = 1 + square / n
    # At the ends the formula is exactly 0 or 1; rounding would leave 1e-17.
    low = 0.0 if share == 0 else (centre - half_width) / scale
    high = 1.0 if share == 1 else (centre + half_width) / scale
    return low, high


def t_p_value(t: float, degrees: int) -> float:
    """Compute the two-sided p-value of Student's t. For t = 2.0452 with 29 degrees of freedom: 0.05.

    Uses the finite series of cos θ with `θ = atan(|t| / √ν)` (M. Abramowitz and I. A. Stegun, Handbook of Mathematical
    Functions, 26.7.3–4).
    """
    if math.isinf(t):
        return 0.0
    angle = math.atan2(abs(t), math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term = cosine if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + is_odd, degrees - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return max(0.0, 1 - (2 / math.pi * (angle + sine * total) if is_odd else sine * total))


@cache
def t_quantile(level: float, degrees: int) -> float:
    """Return t such that Student's distribution lies within ±t with probability `level`; 2.0452 for 0.95 and 29."""
    low, high = 0.0, 1.0
    while t_p_value(high, degrees) > 1 - level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, degrees) > 1 - level else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """Mean of n values. With a single value or cluster there is no standard error, interval or method."""

    mean: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    method: Literal["t", "clustered t"] | None = None
    n: int


def mean_interval(values: Sequence[float], clusters: Sequence[Hashable] | None = None) -> MeanInterval:
    """Compute the mean of one or more values with Student's 95 % interval.

    For 1, 2, …, 30: `15.5 ± 2.0452 · 8.8034 / √30 = (12.213, 18.787)`. If the cluster of each value is given, the
    standard error is clustered, with G − 1 degrees of freedom for G clusters.
    """
    n, mean = len(values), fmean(values)
    error, groups = clustered_error(values, range(n) if clusters is None else clusters)
    if error is None:
        return MeanInterval(mean=mean, n=n)
    reach = t_quantile(0.95, groups - 1) * error
    method: Literal["t", "clustered t"] = "t" if clusters is None else "clustered t"
    return MeanInterval(mean=mean, standard_error=error, low=mean - reach, high=mean + reach, method=method, n=n)


@dataclass(frozen=True, kw_only=True)
class PairedTable:
    """Number of items that both runs, only the first (b), only the second (c) or neither answered correctly."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def items(self) -> int:
        """Number of items."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Score of the second run minus score of the first: (c − b) / n."""
        return (self.only_second - self.only_first) / self.items


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Compute the exact two-sided p-value of McNemar's test from the discordant counts b and c.

    `p = min(1, 2 · P(X ≤ min(b, c)))` for X binomial with b + c trials and probability ½ (Q. McNemar, Psychometrika 12,
    1947; exact form as in A. Agresti, Categorical Data Analysis, 3rd ed., §11.1.2). For b = 1, c = 7: 0.0703.
    """
    trials = only_first + only_second
    tail = sum(math.comb(trials, k) for k in range(min(only_first, only_second) + 1))
    # Integers until here: a tail of 2000 trials would underflow as floats.
    return min(1.0, 2 * tail / (1 << trials))


def paired_difference_interval(table: PairedTable) -> tuple[float, float]:
    """Compute the 95 % Bonett–Price interval of the difference of two scores on the same items, second minus first.

    Wald's interval `d ± z sqrt((b + c) − (c − b)² / n) / n` after adding 1 to each discordant count, or it would be too
    short for few items (D. G. Bonett and R. M. Price, Journal of Educational and Behavioral Statistics 37, 2012,
    p. 479–488). For 21 items, both 1, only first 1, only second 7, neither 12: `6/23 ± 0.248 = (0.013, 0.508)`.
    """
    n = table.items + 2
    distance, discordant = table.only_second - table.only_first, table.only_first + table.only_second + 2
    reach = _Z * math.sqrt(discordant - distance * distance / n) / n
    return max(-1.0, distance / n - reach), min(1.0, distance / n + reach)


def minimum_detectable_difference(items: int, discordant: int) -> float | None:
    """Compute the smallest true difference that McNemar's test detects at the 5 % level with a power of 80 %.

    `D = k sqrt(ψ)` with the share ψ of discordant items, which is D at least, and
    `k = (z_level sqrt(n) + z_power sqrt(n + z_power² − z_level²)) / (n + z_power²)` (R. J. Connor, Biometrics 43, 1987,
    p. 207–211). For 100 items of which 20 differ: 0.124. None if no result of these items would be significant.
    """
    rest = items + _Z_POWER**2 - _Z**2
    if mcnemar_exact(0, items) > 0.05 or rest < 0:
        return None
    factor = (_Z * math.sqrt(items) + _Z_POWER * math.sqrt(rest)) / (items + _Z_POWER**2)
    difference = factor * max(factor, math.sqrt(discordant / items))
    return difference if difference <= 1 else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for several comparisons: `[0.01, 0.04, 0.03]` become `[0.03, 0.06, 0.06]`.

    The i-th of m sorted values (from 0) becomes `max over j ≤ i of min(1, (m − j) p_j)` (S. Holm, Scandinavian Journal
    of Statistics 6, 1979).
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        adjusted[index] = largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
    return adjusted


BY_PROMPT = "prompt_clustered_wilson"
"""Interval method with equal prompts as one cluster. Earlier versions clustered by group only."""


def find_clusters(rows: Sequence[Mapping[str, Any]], *, by_prompt: bool = True) -> tuple[list[int], str]:
    """Return the cluster number of each prediction row, and the method of an interval over the clusters.

    Rows of one `group` are one cluster, and so are rows with equal prompts, since a model answers them alike.

    >>> find_clusters([{"prompt": "1+1?"}, {"prompt": "2+2?", "group": "a"}, {"prompt": "1+1?"}])
    ([0, 1, 0], 'prompt_clustered_wilson')
    """
    groups = _join(rows, ("group",))
    clusters = _join(rows, ("group", "prompt")) if by_prompt else groups
    if len(set(clusters)) < len(set(groups)):
        return clusters, BY_PROMPT
    return groups, "wilson" if len(set(groups)) == len(rows) else "clustered_wilson"


def _join(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[int]:
    """Number rows. Rows that share a value of any key, directly or through other rows, get the same number."""
    parents, first = list(range(len(rows))), dict[tuple[str, str], int]()

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    for number, row in enumerate(rows):
        for key in keys:
            if (value := row.get(key)) is not None:
                shared = (key, value.strip() if key == "prompt" else value)
                parents[root(number)] = root(first.setdefault(shared, number))
    return [root(number) for number in range(len(rows))]


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float | None, int]:
    """Compute the cluster-robust standard error of a mean, and count the clusters.

    `sqrt(G / (G − 1) · Σ_g (Σ_{i in g} (xᵢ − x̄))²) / n` with G clusters (K.-Y. Liang and S. L. Zeger, Biometrika 73,
    1986; as in E. Miller, arXiv 2411.00640, with the correction for few clusters). It is None with one cluster, and
    exactly 0 if all clusters have the same mean. For values 1, 1, 0, 0 in clusters a, a, b, b: `sqrt(2 · 2) / 4 = 0.5`.
    """
    mean = math.fsum(values) / len(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    groups = len(sums)
    if groups < 2:
        return None, groups
    error = math.sqrt(groups / (groups - 1) * math.fsum(each * each for each in sums.values())) / len(values)
    return error if error > _ROUNDING * max(map(abs, values)) else 0.0, groups


def clustered_wilson(error: float | None, successes: float, n: int, groups: int) -> tuple[float, float]:
    """Compute the 95 % Wilson interval of a share of clustered items, using their effective number.

    n clustered items are worth `n* = p (1 − p) / error²` independent ones, at most n, and the quantile is Student's
    with G − 1 degrees of freedom (N. Dean and M. Pagano, Survey Research Methods 9, 2015). With an error of 0, n* is
    the number of clusters. For 24 right of 40 in 4 clusters with an error of 0.15: n* = 10.7, `(0.206, 0.897)`.
    """
    if error is None:
        return 0.0, 1.0
    share = successes / n
    effective = min(float(n), share * (1 - share) / error**2) if error else float(min(n, groups))
    return _wilson(share, effective, t_quantile(0.95, groups - 1))


def clustered_difference(differences: Sequence[int], clusters: Sequence[Hashable]) -> tuple[float, float, float]:
    """Compute the 95 % interval (low, high) and the p-value of a paired difference of clustered items.

    A difference is 1 if only the second run is right, −1 if only the first is, else 0. If all clusters are alike, their
    standard error is 0, and each counts as one item of the Bonett–Price interval and McNemar's test.
    """
    mean, (error, groups) = fmean(differences), clustered_error(differences, clusters)
    if error is None:
        return -1.0, 1.0, 1.0
    if error == 0:
        count = round(mean * groups)
        table = PairedTable(both=groups - abs(count), only_first=max(0, -count), only_second=max(0, count), neither=0)
        return (*paired_difference_interval(table), mcnemar_exact(table.only_first, table.only_second))
    reach = t_quantile(0.95, groups - 1) * error
    return max(-1.0, mean - reach), min(1.0, mean + reach), t_p_value(mean / error, groups - 1)


def clustered_detectable_difference(differences: Sequence[int], clusters: Sequence[Hashable]) -> float | None:
    """Compute the smallest true difference that the clustered test detects at the 5 % level with a power of 80 %.

    `(t₀.₉₇₅ + t₀.₈) · error` with G − 1 degrees of freedom (H. S. Bloom, Evaluation Review 19, 1995), or None if the
    error is unknown or 0, or the difference would exceed 1.
    """
    error, groups = clustered_error(differences, clusters)
    if not error:
        return None
    reach = (t_quantile(0.95, groups - 1) + t_quantile(0.6, groups - 1)) * error
    return reach if reach <= 1 else None


REFUTATION_LEVEL = 0.001  # significance level at which a stated score is called impossible: one honest run in 1,000


@dataclass(frozen=True, kw_only=True)
class ExactMatch:
    """Number of right answers among n items."""

    correct: int
    n: int

    @property
    def value(self) -> float:
        """Fraction of right answers."""
        return self.correct / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        return wilson_interval(self.correct, self.n)

    def document(self) -> dict[str, Any]:
        """Return the fields of a receipt: value, n, low and high."""
        low, high = self.interval
        return {"value": self.value, "n": self.n, "low": low, "high": high}


def fisher_exact_less(claimed: ExactMatch, found: ExactMatch) -> float:
    """Compute the p-value of finding so few right answers if both sets of items are equally hard.

    Fisher's one-sided exact test `P(X ≤ x₂)` for `X ~ Hypergeometric(n₁ + n₂, x₁ + x₂, n₂)` (A. Agresti, Categorical
    Data Analysis, 3rd ed., §3.5.1). For 3 of 4 claimed and 1 of 4 found: `(1 + 16) / 70 = 0.243`.
    """

    def ln_choose(n: int, k: int) -> float:  # the binomial coefficient itself may have millions of digits
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    right, wrong = claimed.correct + found.correct, claimed.n + found.n - claimed.correct - found.correct
    total = ln_choose(right + wrong, found.n)
    terms = (
        math.exp(ln_choose(right, x) + ln_choose(wrong, found.n - x) - total)
        for x in range(max(0, found.n - wrong), found.correct + 1)
    )
    return min(1.0, math.fsum(terms))
