"""Advantages against the worked example, against NumPy's own mean and deviation, and their symmetries."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.rewards import advantages
from evidence.rewards.advantages import has_spread


def test_the_worked_example():
    [found] = advantages([[1, 0, 0, 1]], "group")
    assert found == pytest.approx([0.86587543, -0.86587543, -0.86587543, 0.86587543], abs=5e-9)


@pytest.mark.parametrize(("one", "other"), [(1.0, 0.0), (0.3, 0.2), (7.0, -2.0)])
def test_of_two_only_the_order_survives(one, other):
    [found] = advantages([[one, other]], "group")
    assert found == pytest.approx([0.7071, -0.7071], abs=2e-3)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_against_numpy(scale):
    draw = np.random.default_rng(1)
    groups = draw.random((6, 8))
    by = {
        "group": groups.std(axis=1, ddof=1, keepdims=True) + 1e-4,
        "batch": groups.std(ddof=1) + 1e-4,
        "none": 1.0,
    }[scale]
    right = (groups - groups.mean(axis=1, keepdims=True)) / by
    np.testing.assert_allclose(advantages(groups.tolist(), scale), right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_without_spread_gives_zeros_exactly(scale):
    # The mean of three times 0.1 is not 0.1 in floating point.
    assert advantages([[0.1] * 3, [0.0, 1.0]], scale)[0] == [0.0, 0.0, 0.0]
    assert advantages([[0.1] * 3], scale) == [[0.0] * 3]
    assert advantages([[4.0]], scale) == [[0.0]]
    assert advantages([[]], scale) == [[]]
    assert not has_spread([0.1] * 3)
    assert not has_spread([])


def test_the_order_of_groups_and_of_samples_does_not_matter():
    groups = [[0.0, 1.0, 0.25], [0.5, 0.5, 1.0], [0.0, 0.0, 1.0]]
    for scale in ("group", "batch", "none"):
        found = advantages(groups, scale)
        assert advantages(groups[::-1], scale) == found[::-1]
        turned = advantages([group[::-1] for group in groups], scale)
        assert turned == [each[::-1] for each in found]
