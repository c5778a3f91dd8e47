from __future__ import annotations

import itertools

import numpy as np
import pytest

from dashboard.shared.charts.sampling import POINTS, kept, smoothed


def test_the_worked_example() -> None:
    assert kept(np.array([3, 1, 2, 9, 2, 2]), 4).tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("size", [4001, 10_007, 1_000_000])
def test_planted_spikes_of_one_step_are_all_kept(size: int) -> None:
    values = np.random.default_rng(0).normal(size=size)
    spikes = [7, size // 3, size - 9]
    values[spikes] = [50, -50, 50]
    indices = kept(values)
    assert set(spikes) <= set(indices.tolist())
    assert len(indices) <= POINTS + 2
    assert np.all(np.diff(indices) > 0)
    assert (indices[0], indices[-1]) == (0, size - 1)


def test_each_bucket_keeps_the_extremes_that_a_slow_reading_finds() -> None:
    values = np.random.default_rng(1).normal(size=1003)
    edges = np.linspace(0, len(values), 51).astype(int)
    wanted = {0, len(values) - 1}
    for start, end in itertools.pairwise(edges):
        part = values[start:end]
        wanted |= {start + int(part.argmin()), start + int(part.argmax())}
    assert kept(values, 100).tolist() == sorted(wanted)


def test_gaps_stay_gaps_and_are_never_extremes() -> None:
    values = np.full(100, np.nan)
    values[60] = 1.0
    indices = kept(values, 10)
    assert 60 in indices
    assert np.isnan(values[indices]).sum() >= 4


def test_short_series_are_left_alone() -> None:
    assert kept(np.arange(5), 10).tolist() == [0, 1, 2, 3, 4]
    assert kept(np.array([]), 10).tolist() == []


def test_smoothing_without_the_bias_of_its_start() -> None:
    np.testing.assert_allclose(smoothed(np.array([1.0, 2.0, 3.0]), 0.5), [1, 5 / 3, 17 / 7])
    np.testing.assert_allclose(smoothed(np.full(5, 7.0), 0.9), np.full(5, 7.0))


@pytest.mark.parametrize("weight", [0.0, 0.01, 0.6, 0.99])
def test_smoothing_against_the_recurrence_one_step_at_a_time(weight: float) -> None:
    values = np.random.default_rng(2).normal(size=3000)
    state, expected = 0.0, []
    for step, value in enumerate(values, start=1):
        state = weight * state + (1 - weight) * value
        expected.append(state / (1 - weight**step))
    np.testing.assert_allclose(smoothed(values, weight), expected, rtol=1e-9, atol=1e-12)


def test_a_value_that_is_not_finite_stays_and_does_not_spread() -> None:
    result = smoothed(np.array([1.0, np.nan, 1.0, 1.0]), 0.9)
    np.testing.assert_allclose(result[[0, 2, 3]], 1.0)
    assert np.isnan(result[1])
