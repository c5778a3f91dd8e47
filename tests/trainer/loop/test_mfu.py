"""The share of a device's peak in the rows of a run: there where the peak is known, and no part of what is repeated."""

import pytest
from whole_runs import errors_of, rows

from trainer.replay.repetition import MACHINE_FIELDS


@pytest.mark.slow
def test_rows_have_the_share_of_the_peak_as_mfu(config, train, monkeypatch):
    monkeypatch.setattr("trainer.run.ideal_seconds", lambda task, target: 0.001)
    folder = train(config)
    assert all(row["mfu"] * row["step_seconds"] == pytest.approx(0.001) for row in rows(folder))
    assert errors_of(folder) == []
    assert "mfu" in MACHINE_FIELDS


def test_rows_have_no_mfu_without_a_known_peak(config, finished):
    assert not any("mfu" in row for row in rows(finished(config)))
