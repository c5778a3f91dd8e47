"""Student's distribution against SciPy's, and intervals of means by hand and against SciPy's bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from evidence.scores.means import MANY, bca_interval, mean_interval, t_p_value, t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 9, 29, 100, 1318, 10**6])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_quantiles_are_those_of_scipy(degrees: int, level: float):
    assert t_quantile(level, degrees) == pytest.approx(stats.t.ppf((1 + level) / 2, degrees), rel=1e-8)


@pytest.mark.parametrize("degrees", [1, 2, 9, 29, 10**6])
@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, -2.0, 5.0, 40.0])
def test_p_values_are_those_of_scipy(degrees: int, t: float):
    assert t_p_value(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), rel=1e-8, abs=1e-15)


def test_a_t_without_end_leaves_no_doubt():
    assert t_p_value(math.inf, 3) == 0.0


def test_many_values_have_students_interval():
    found = mean_interval(range(1, 31))
    assert (found.mean, found.method, found.n) == (15.5, "t", 30)
    assert (found.low, found.high) == pytest.approx((12.213, 18.787), abs=5e-4)
    expected = stats.t.interval(0.95, 29, loc=15.5, scale=stats.sem(range(1, 31)))
    assert (found.low, found.high) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[1, 2, 3, 10, 4], [0, 0, 1], [5.5, -2.5], list(range(MANY - 1))])
def test_few_values_have_the_bootstrap_of_scipy(values: list[float]):
    found = mean_interval(values)
    assert found.method == "bca bootstrap"
    theirs = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=9999, rng=np.random.default_rng(1))
    width = max(values) - min(values)
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)
    assert (found.low, found.high) == bca_interval(values)  # the same every time


def test_one_value_has_no_interval():
    found = mean_interval([4.0])
    assert (found.mean, found.standard_error, found.low, found.high, found.method) == (4.0, None, None, None, None)


def test_equal_values():
    assert bca_interval([3.0, 3.0, 3.0]) == (3.0, 3.0)
