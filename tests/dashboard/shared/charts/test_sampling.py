from __future__ import annotations

import itertools

import numpy as np
import pytest

from dashboard.shared.charts.sampling import POINTS, moving_average, thin_out


def test_the_worked_example() -> None:
    assert thin_out(np.array([3, 1, 2, 9, 2, 2]), 4).tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("size", [4001, 10_007, 1_000_000])
def test_planted_spikes_of_one_step_are_all_kept(size: int) -> None:
    values = np.random.default_rng(0).normal(size=size)
    spikes = [7, size // 3, size - 9]
    values[spikes] = [50, -50, 50]
    indices = thin_out(values)
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
    assert thin_out(values, 100).tolist() == sorted(wanted)


def test_gaps_stay_gaps_and_are_never_extremes() -> None:
    values = np.full(100, np.nan)
    values[60] = 1.0
    indices = thin_out(values, 10)
    assert 60 in indices
    assert np.isnan(values[indices]).sum() >= 4


def test_short_series_are_left_alone() -> None:
    assert thin_out(np.arange(5), 10).tolist() == [0, 1, 2, 3, 4]
    assert thin_out(np.array([]), 10).tolist() == []


def test_smoothing_without_the_bias_of_its_ends() -> None:
    # (1 + ½ 2 + ¼ 3) / (1 + ½ + ¼), (½ 1 + 2 + ½ 3) / 2, (¼ 1 + ½ 2 + 3) / (1 + ½ + ¼)
    np.testing.assert_allclose(moving_average(np.array([1.0, 2.0, 3.0]), 0.5), [11 / 7, 2, 17 / 7])
    np.testing.assert_allclose(moving_average(np.full(5, 7.0), 0.9), np.full(5, 7.0))
    assert moving_average(np.array([]), 0.9).tolist() == []


@pytest.mark.parametrize("weight", [0.0, 0.01, 0.6, 0.99])
def test_smoothing_against_its_sum_one_step_at_a_time(weight: float) -> None:
    values = np.random.default_rng(2).normal(size=3000)
    distance = np.abs(np.arange(3000)[:, None] - np.arange(3000)[None, :])
    weights = weight**distance
    np.testing.assert_allclose(
        moving_average(values, weight), weights @ values / weights.sum(axis=1), rtol=1e-9, atol=1e-12
    )


def test_the_smoothed_line_of_a_falling_loss_has_as_many_points_above_as_below() -> None:
    losses = -0.015 * np.arange(400) + 0.15 * np.random.default_rng(0).normal(size=400)
    above = np.mean(losses > moving_average(losses, 0.95))
    assert 0.4 < above < 0.6


def test_a_value_that_is_not_finite_stays_and_does_not_spread() -> None:
    result = moving_average(np.array([1.0, np.nan, 1.0, 1.0]), 0.9)
    np.testing.assert_allclose(result[[0, 2, 3]], 1.0)
    assert np.isnan(result[1])
