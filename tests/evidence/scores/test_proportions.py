"""Every formula against an independent truth: scipy, published tables, or enumeration of all outcomes."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy.stats import binomtest

from evidence.scores.proportions import (
    PairedTable,
    holm,
    mcnemar_exact,
    minimum_detectable_difference,
    paired_difference_interval,
    standard_error,
    wilson_interval,
)

COUNTS = [(0, 1), (1, 1), (0, 10), (8, 10), (10, 10), (29, 30), (50, 100), (1, 1319), (700, 1319)]


@pytest.mark.parametrize(("successes", "n"), COUNTS)
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_scipy(successes: int, n: int, level: float):
    truth = binomtest(successes, n).proportion_ci(confidence_level=level, method="wilson")
    assert wilson_interval(successes, n, level) == pytest.approx((truth.low, truth.high), abs=1e-12)


def test_wilson_as_published():
    # R. G. Newcombe, Statistics in Medicine 17, 1998, p. 857-872, Table I, method 3.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_wilson_never_leaves_the_range_and_always_holds_the_share():
    for n in range(1, 60):
        for successes in range(n + 1):
            low, high = wilson_interval(successes, n)
            assert 0.0 <= low <= successes / n <= high <= 1.0


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (0, 0)])
def test_wilson_refuses_impossible_counts(successes: int, n: int):
    with pytest.raises(ValueError, match=f"got successes={successes}, n={n}"):
        wilson_interval(successes, n)


def test_standard_error_by_hand():
    assert standard_error(8, 10) == pytest.approx(0.12649110640673517, abs=1e-15)
    assert standard_error(0, 10) == 0.0


@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 1), (1, 7), (5, 5), (0, 20), (9, 16), (300, 340), (1200, 1300)])
def test_mcnemar_agrees_with_scipys_binomial_test(b: int, c: int):
    truth = binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar_exact(b, c) == pytest.approx(truth, rel=1e-9)
    assert mcnemar_exact(c, b) == mcnemar_exact(b, c)


def test_mcnemar_does_not_underflow():
    assert 0.0 < mcnemar_exact(0, 1000) < 1e-300
    assert mcnemar_exact(0, 2000) == 0.0


def table(b: int, c: int, n: int) -> PairedTable:
    return PairedTable(both=(n - b - c) // 2, only_first=b, only_second=c, neither=(n - b - c) - (n - b - c) // 2)


def tango_as_quartic(b: int, c: int, n: int) -> tuple[float, float]:
    """Return the interval as roots of a polynomial: Z. Yang, X. Sun, J. W. Hardin, Statistics in Medicine 32, 2013."""
    g = 1.959963984540054**2
    d = c - b
    coefficients = [
        n**2 * (n / g + 1) ** 2,
        -n * d * (n / g + 1) * (4 * n / g + 1),
        2 * n * d**2 * (3 * n / g + 2) / g - n**2 * ((b + c) / g + 1),
        n * d * (2 * (b + c) / g + 1) - d**3 * (4 * n / g + 1) / g,
        d**2 * (d**2 / g - (b + c)) / g,
    ]
    roots = np.roots(coefficients)
    real = sorted(root.real for root in roots if abs(root.imag) < 1e-6)
    return real[0], real[-1]


@pytest.mark.parametrize(
    ("b", "c", "n"), [(1, 7, 21), (40, 20, 160), (150, 86, 1600), (3, 11, 100), (1, 2, 30), (6, 4, 50)]
)
def test_paired_interval_agrees_with_its_closed_form(b: int, c: int, n: int):
    assert paired_difference_interval(table(b, c, n)) == pytest.approx(tango_as_quartic(b, c, n), abs=1e-6)


def test_paired_interval_as_published():
    # M. W. Fagerland, S. Lydersen, P. Laake, Statistics in Medicine 33, 2014: airway reactivity, Tango's interval.
    airway = PairedTable(both=1, only_first=1, only_second=7, neither=12)
    assert airway.difference == pytest.approx(6 / 21)
    assert paired_difference_interval(airway) == pytest.approx((0.026, 0.517), abs=5e-4)


def test_paired_interval_of_no_difference_at_all_is_not_a_point():
    same = PairedTable(both=25, only_first=0, only_second=0, neither=5)
    low, high = paired_difference_interval(same)
    # With b = c = 0 both ends solve n D² = z² |D| (1 - |D|), so D = z² / (n + z²).
    assert (low, high) == pytest.approx((-3.8414588 / 33.8414588, 3.8414588 / 33.8414588), abs=1e-6)


def test_paired_interval_turns_its_sign_when_the_runs_change_places():
    for b, c, n in [(0, 5, 9), (3, 11, 100), (10, 0, 10), (0, 0, 4)]:
        low, high = paired_difference_interval(table(b, c, n))
        assert paired_difference_interval(table(c, b, n)) == pytest.approx((-high, -low), abs=1e-12)
        assert -1.0 <= low <= table(b, c, n).difference <= high <= 1.0


def outcomes(n: int, only_first: float, only_second: float):
    """Yield (b, c, probability) of every outcome of n items that is not negligible."""
    for b in range(n + 1):
        for c in range(n + 1 - b):
            ways = math.lgamma(n + 1) - math.lgamma(b + 1) - math.lgamma(c + 1) - math.lgamma(n - b - c + 1)
            shares = ((b, only_first), (c, only_second), (n - b - c, 1 - only_first - only_second))
            if any(count and share <= 0 for count, share in shares):
                continue
            weight = math.exp(ways + sum(count * math.log(share) for count, share in shares if count))
            if weight > 1e-8:
                yield b, c, weight


@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.parametrize(
    ("first", "second"), [(0.5, 0.5), (0.5, 0.6), (0.9, 0.9), (0.97, 0.97), (0.4, 0.1), (0.97, 0.8), (0.0, 0.45)]
)
@pytest.mark.parametrize("agreement", [0.0, 0.5])
def test_paired_interval_covers_the_truth_as_often_as_it_says(n: int, first: float, second: float, agreement: float):
    """All outcomes are enumerated, so this coverage is exact and nothing is left to chance."""
    both = first * second + agreement * (min(first, second) - first * second)
    only_first, only_second = first - both, second - both
    covered = false_alarms = 0.0
    for b, c, weight in outcomes(n, only_first, only_second):
        low, high = paired_difference_interval(table(b, c, n))
        covered += weight * (low - 1e-9 <= second - first <= high + 1e-9)
        false_alarms += weight * (mcnemar_exact(b, c) <= 0.05)
    assert covered >= 0.93
    if n * (only_first + only_second) >= 10:  # with fewer differing items every interval is wider than it need be
        assert covered <= 0.97
    if first == second:
        assert false_alarms <= 0.05


def test_minimum_detectable_difference_is_found_as_often_as_it_says():
    chance = random.Random(7)
    n, discordant = 400, 80
    difference = minimum_detectable_difference(n, discordant)
    assert difference is not None
    worse, better = (0.2 - difference) / 2, (0.2 + difference) / 2
    found = 0
    for _ in range(1500):
        draws = [chance.random() for _ in range(n)]
        b, c = sum(draw < worse for draw in draws), sum(worse <= draw < worse + better for draw in draws)
        found += mcnemar_exact(b, c) <= 0.05
    # The exact test is a little more careful than the formula, which stands for the test without correction.
    assert 0.74 <= found / 1500 <= 0.83


def test_minimum_detectable_difference_by_its_equation():
    for n, discordant in [(100, 20), (1319, 200), (2000, 2000)]:
        difference = minimum_detectable_difference(n, discordant)
        assert difference is not None
        share = discordant / n
        needed = 1.959963984540054 * math.sqrt(share) + 0.8416212335729143 * math.sqrt(share - difference**2)
        assert math.sqrt(n) * difference == pytest.approx(needed, abs=1e-9)


def test_few_items_show_no_difference_at_all():
    assert minimum_detectable_difference(5, 0) is None
    assert minimum_detectable_difference(6, 0) is not None
    without_discordant = minimum_detectable_difference(50, 0)
    assert without_discordant is not None
    assert 0.1 < without_discordant < 0.2


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.8]) == [1.0, 1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []
