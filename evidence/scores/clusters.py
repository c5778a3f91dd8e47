"""How sure a figure is whose items come in groups: questions on one text are right or wrong together."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from evidence.scores.means import MeanInterval, t_p_value, t_quantile
from evidence.scores.proportions import PairedTable, mcnemar_exact, paired_difference_interval, wilson_with

_ROUNDING = 1e-12
"""Standard error, relative to the largest value, that is the rounding of sums and no more: groups all alike."""

Row = Mapping[str, Any]


BY_PROMPT = "prompt_clustered_wilson"
"""Method of an interval that takes items with one prompt as one observation. Earlier versions looked at groups only."""


def clusters_of(rows: Sequence[Row], *, by_prompt: bool = True) -> tuple[list[int], str]:
    """Return the number of each row's cluster, and the method of an interval over them.

    Rows of one `group` are one cluster, and so are rows with one prompt: a model answers it in one way.

    >>> clusters_of([{"prompt": "1+1?"}, {"prompt": "2+2?", "group": "a"}, {"prompt": "1+1?"}])
    ([0, 1, 0], 'prompt_clustered_wilson')

    Args:
        rows: of predictions.
        by_prompt: take equal prompts as one cluster, not only groups.
    """
    groups = _joined(rows, ("group",))
    clusters = _joined(rows, ("group", "prompt")) if by_prompt else groups
    if len(set(clusters)) < len(set(groups)):
        return clusters, BY_PROMPT
    return groups, "wilson" if len(set(groups)) == len(rows) else "clustered_wilson"


def _joined(rows: Sequence[Row], keys: Sequence[str]) -> list[int]:
    """Return a number for each row, the same for rows that share a value of any key, directly or through others."""
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
    """Return the standard error of a mean whose values come in groups, and the number of groups.

    `sqrt(G / (G − 1) · Σ_g (Σ_{i in g} (xᵢ − x̄))²) / n` with G groups (K.-Y. Liang and S. L. Zeger, Biometrika 73,
    1986; as in E. Miller, arXiv 2411.00640, with the correction for few groups). With every value its own group it is
    the usual `s / √n`. One group has no standard error; groups of the same mean have exactly 0.

    For values 1, 1, 0, 0 in groups a, a, b, b: residual sums 1 and −1, so `sqrt(2 · 2) / 4 = 0.5`; taken as
    independent it would be 0.289.
    """
    mean = math.fsum(values) / len(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    groups = len(sums)
    if groups < 2:
        return None, groups
    spread = math.fsum(each * each for each in sums.values())
    error = math.sqrt(groups / (groups - 1) * spread) / len(values)
    return error if error > _ROUNDING * max(map(abs, values)) else 0.0, groups


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable], level: float = 0.95) -> MeanInterval:
    """Return the mean of values in groups with Student's interval of G − 1 degrees of freedom."""
    n, mean = len(values), math.fsum(values) / len(values)
    error, groups = clustered_error(values, clusters)
    if error is None:
        return MeanInterval(mean=mean, standard_error=None, low=None, high=None, method=None, n=n)
    reach = t_quantile(level, groups - 1) * error
    return MeanInterval(mean=mean, standard_error=error, low=mean - reach, high=mean + reach, method="clustered t", n=n)


def clustered_wilson(error: float | None, successes: float, n: int, groups: int) -> tuple[float, float]:
    """Return the 95 % interval of a share whose items come in groups: Wilson's, for the items that they are worth.

    n items in groups are worth `n* = p (1 − p) / error²` independent ones, and Wilson's interval is taken of n* with
    Student's quantile of G − 1 degrees of freedom (N. Dean and M. Pagano, Survey Research Methods 9, 2015). n* is at
    most n. Where every group has the same share (all items right, all wrong, or half of them in each), the error is 0
    and states too much; n* is then the number of groups. One group means nothing: the interval is (0, 1).

    For 24 right of 40 in 4 groups of 10 with a standard error of 0.15: n* = 10.7, interval `(0.206, 0.897)`.
    """
    if error is None:
        return 0.0, 1.0
    share = successes / n
    worth = min(float(n), share * (1 - share) / error**2) if error else float(min(n, groups))
    return wilson_with(share, worth, t_quantile(0.95, groups - 1))


def clustered_difference(differences: Sequence[int], clusters: Sequence[Hashable]) -> tuple[float, float, float]:
    """Return low and high end of the 95 % interval, and the p-value, of a paired difference of items in groups.

    Student's t of the differences (1: only the second is right, −1: only the first, 0: both or neither) with the
    clustered standard error. Where no group differs from another, that error is 0 and states too much; the groups are
    then taken as items of Tango's interval and McNemar's test. One group means nothing: (−1, 1) and 1.
    """
    result = clustered_mean(differences, clusters)
    groups = len(set(clusters))
    if result.standard_error is None or result.low is None or result.high is None:
        return -1.0, 1.0, 1.0
    if result.standard_error == 0:
        counts = round(result.mean * groups)
        table = PairedTable(
            both=groups - abs(counts), only_first=max(0, -counts), only_second=max(0, counts), neither=0
        )
        return (*paired_difference_interval(table), mcnemar_exact(table.only_first, table.only_second))
    p_value = t_p_value(result.mean / result.standard_error, groups - 1)
    return max(-1.0, result.low), min(1.0, result.high), p_value


def clustered_detectable(differences: Sequence[int], clusters: Sequence[Hashable], power: float = 0.8) -> float | None:
    """Return the smallest true difference that the clustered test finds with the given power, at the 5 % level.

    `(t₀.₉₇₅ + t_power) · error` with G − 1 degrees of freedom (H. S. Bloom, Evaluation Review 19, 1995). None: it
    is unknown, or it would be more than 1.
    """
    error, groups = clustered_error(differences, clusters)
    if not error:
        return None
    reach = t_quantile(0.95, groups - 1) + t_quantile(2 * power - 1, groups - 1)
    return reach * error if reach * error <= 1 else None
