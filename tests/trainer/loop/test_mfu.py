"""The share of a device's peak in the rows of a run: there where the peak is known, and no part of what is repeated."""

from collections.abc import Callable

import pytest
from whole_runs import carried_out, errors_of, rows

from evidence import layout
from trainer.config.tree import Config
from trainer.replay.difference import MACHINE_FIELDS
from trainer.run import RunRequest


@pytest.mark.slow
def test_rows_state_what_the_peak_would_take_over_what_a_step_took(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trainer.run.ideal_seconds", lambda task, target: 0.001)
    order = order_of(config)
    assert carried_out(order) == 0
    found = rows(order.folder, layout.METRICS)
    assert found
    assert all(row["mfu"] * row["step_seconds"] == pytest.approx(0.001) for row in found)
    assert errors_of(order.folder) == []
    assert "mfu" in MACHINE_FIELDS


def test_a_device_without_a_known_peak_has_no_share_of_it(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    assert carried_out(order) == 0
    assert not any("mfu" in row for row in rows(order.folder, layout.METRICS))
