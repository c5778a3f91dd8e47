"""Whether the intervals hold what they promise, on runs of chance whose truth is known.

Where the figures are few, they are added up exactly instead of drawn. What the tests state is what is true, also where
it is not 0.95: exact tests on few items find too little (never too much), and some intervals are known to be narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from evidence.scores.clusters import clustered_difference, clustered_error, clustered_wilson
from evidence.scores.means import bca_interval, mean_interval
from evidence.scores.proportions import PairedTable, mcnemar_exact, paired_difference_interval, wilson_interval

pytestmark = pytest.mark.slow

RUNS = 1500
NOISE = 0.017
"""Three standard errors of a share of 0.95 in so many runs."""
PAIRS = 4000
"""Pairs of runs: here the bounds leave room for chance, since the truth lies in their middle."""


@pytest.mark.parametrize("n", [30, 50, 100, 300, 1319])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.9, 0.95, 0.97])
def test_wilson_covers_the_truth(n: int, share: float):
    weights = binom.pmf(range(n + 1), n, share)
    covered = 0.0
    for successes in range(n + 1):
        low, high = wilson_interval(successes, n)
        covered += weights[successes] * (low <= share <= high)
    assert 0.925 < covered < 0.98


def outcomes(n: int, first: float, second: float) -> list[tuple[float, PairedTable]]:
    """Return every table that has a chance, with its chance; first and second are right alone with these shares."""
    tables = []
    for b in range(n + 1):
        chance = binom.pmf(b, n, first)
        if chance > 1e-9:
            rest = binom.pmf(range(n - b + 1), n - b, second / (1 - first))
            tables += [
                (chance * rest[c], PairedTable(both=n - b - c, only_first=b, only_second=c, neither=0))
                for c in range(n - b + 1)
                if rest[c] > 1e-9
            ]
    return tables


def paired(n: int, first: float, second: float) -> tuple[float, float]:
    """Return how often Tango's interval covers the truth, and how often McNemar's exact test finds a difference."""
    covered = found = 0.0
    for chance, table in outcomes(n, first, second):
        low, high = paired_difference_interval(table)
        covered += chance * (low <= second - first <= high)
        found += chance * (mcnemar_exact(table.only_first, table.only_second) <= 0.05)
    return covered, found


@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.2, 0.2), (0.05, 0.15), (0.02, 0.2)])
def test_paired_difference_covers_the_truth(n: int, shares: tuple[float, float]):
    assert 0.93 < paired(n, *shares)[0] < 0.97


def test_paired_difference_of_near_perfect_runs_errs_on_the_wide_side():
    # Two runs of 97 %: one item in 30 differs on each side, and so few tables can happen that 0.95 is not among them.
    assert 0.97 < paired(30, 0.03, 0.03)[0] < 1.0
    assert 0.93 < paired(100, 0.03, 0.03)[0] < 0.97


def test_the_exact_test_never_finds_too_much_and_with_few_items_too_little():
    found = {(n, share): paired(n, share, share)[1] for n in (30, 100) for share in (0.03, 0.1, 0.2)}
    assert max(found.values()) <= 0.05
    assert found[30, 0.03] < 0.001  # six items to one side are needed, and 1.8 are to be expected
    assert 0.03 < found[100, 0.2] < 0.05


def rights(chance: np.random.Generator, groups: int, share: float, alike: float) -> np.ndarray:
    """Return the probability of a right answer in each group: a beta distribution, `alike` its correlation."""
    return chance.beta(share * (1 - alike) / alike, (1 - share) * (1 - alike) / alike, size=groups)


@pytest.mark.parametrize("groups", [(10, 10), (30, 10), (100, 5)])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
@pytest.mark.parametrize("alike", [0.1, 0.4])
def test_share_in_groups_covers_the_truth(groups: tuple[int, int], share: float, alike: float):
    count, size = groups
    chance = np.random.default_rng([count, round(100 * share), round(10 * alike)])
    clusters = np.repeat(np.arange(count), size).tolist()
    covered = plain = 0
    for _ in range(RUNS):
        values = (chance.random((count, size)) < rights(chance, count, share, alike)[:, None]).astype(int)
        right = values.ravel().tolist()
        error, found = clustered_error(right, clusters)
        low, high = clustered_wilson(error, sum(right), len(right), found)
        covered += low <= share <= high
        low, high = wilson_interval(sum(right), len(right))
        plain += low <= share <= high
    # Known to be narrow: near-perfect runs whose few mistakes stand in a few groups.
    least = 0.88 if share == 0.97 and alike == 0.4 else 0.93
    assert least - NOISE < covered / RUNS < 0.98 + NOISE
    if alike == 0.4:
        assert plain / RUNS < covered / RUNS  # what the groups are for


@pytest.mark.parametrize("groups", [(10, 3), (10, 10), (30, 10), (100, 5)])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
def test_difference_in_groups_finds_a_difference_that_is_none_as_often_as_it_may(groups: tuple[int, int], share: float):
    count, size = groups
    chance = np.random.default_rng([count, size, round(100 * share)])
    clusters = np.repeat(np.arange(count), size).tolist()
    false = naive = 0
    for _ in range(PAIRS):
        shared = rights(chance, count, share, 0.4)
        both = [np.where(chance.random(count) < 0.5, shared, rights(chance, count, share, 0.4)) for _ in range(2)]
        first, second = ((chance.random((count, size)) < one[:, None]).astype(int) for one in both)
        differences = (second - first).ravel().tolist()
        low, high, p_value = clustered_difference(differences, clusters)
        false += p_value <= 0.05
        naive += mcnemar_exact(differences.count(-1), differences.count(1)) <= 0.05
        assert (p_value <= 0.05) == (not low <= 0 <= high)
    # With few groups that differ at all, a near-perfect pair shows too little; nowhere too much.
    least = 0.0 if share == 0.97 else 0.03
    assert least < false / PAIRS < 0.07 or (least == 0.0 and not false)
    if size == 10:
        assert naive / PAIRS > 0.1  # the test that takes the items as independent


MEANS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda chance, n: chance.normal(size=n), 0.0),
    "uniform": (lambda chance, n: chance.random(n), 0.5),
    "exponential": (lambda chance, n: chance.exponential(size=n), 1.0),
}


@pytest.mark.parametrize(
    ("kind", "n", "least"), [("normal", 30, 0.93), ("uniform", 30, 0.93), ("exponential", 100, 0.91)]
)
def test_students_interval_covers_the_truth(kind: str, n: int, least: float):
    draw, truth = MEANS[kind]
    chance = np.random.default_rng(n)
    covered = 0
    for _ in range(RUNS):
        found = mean_interval(draw(chance, n).tolist())
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert least - NOISE < covered / RUNS < 0.97


@pytest.mark.parametrize(
    ("kind", "n", "least"), [("normal", 20, 0.91), ("uniform", 20, 0.91), ("exponential", 20, 0.88)]
)
def test_the_bootstrap_of_few_values_is_somewhat_narrow(kind: str, n: int, least: float):
    draw, truth = MEANS[kind]
    chance = np.random.default_rng(n)
    covered, runs = 0, 1000
    for _ in range(runs):
        low, high = bca_interval(draw(chance, n).tolist(), resamples=999)
        covered += low <= truth <= high
    assert least - NOISE < covered / runs < 0.97
    assert not math.isclose(low, high)
