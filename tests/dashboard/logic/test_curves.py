from __future__ import annotations

import json

import numpy as np
import pytest

from dashboard.logic.curves import Line, drawing
from dashboard.logic.series import NAMES, Series


def series(steps: int, **columns: np.ndarray) -> Series:
    """Return a series of a run that logged these columns and nothing else."""
    every = {name: np.full(steps, np.nan) for name in (*NAMES, "seconds")}
    every |= {"step": np.arange(1.0, steps + 1), "tokens_seen": np.arange(1.0, steps + 1) * 2048}
    every["seconds"] = np.arange(steps) * 0.5
    return Series(columns=every | columns, unread=0)


def line(name: str, read: Series) -> Line:
    return Line(name=name, series=read, colour="#123456")


def test_a_panel_for_each_column_that_was_measured() -> None:
    read = series(100, loss=np.linspace(5, 1, 100), grad_norm=np.ones(100))
    drawn = drawing([line("a", read)], x="step", log=False, smoothing=0)
    assert [title["text"] for title in drawn.option["title"]] == [
        "Loss (nats per supervised token)",
        "Gradient norm, before clipping",
    ]
    assert len(drawn.option["series"]) == len(drawn.option["dataset"]) == 2
    assert (drawn.drawn, drawn.total, drawn.remark) == (200, 200, "")


def test_smoothing_keeps_the_raw_line_behind_and_leaves_the_learning_rate_alone() -> None:
    read = series(100, loss=np.linspace(5, 1, 100), learning_rate=np.ones(100))
    drawn = drawing([line("a", read)], x="step", log=False, smoothing=0.9)
    loss, rate = drawn.option["dataset"]
    assert list(loss["source"]) == ["x", "Loss", "Loss, smoothed"]
    assert list(rate["source"]) == ["x", "Learning rate"]
    widths = [(part["encode"]["y"], part["lineStyle"]["opacity"]) for part in drawn.option["series"]]
    assert widths == [("Loss", 0.35), ("Loss, smoothed", 1), ("Learning rate", 1)]


def test_a_long_series_is_thinned_keeps_its_spikes_and_says_so() -> None:
    loss = np.ones(1_000_000)
    loss[[10, 500_000, 999_000]] = [9, 8, 7]
    drawn = drawing([line("a", series(1_000_000, loss=loss))], x="step", log=False, smoothing=0)
    source = drawn.option["dataset"][0]["source"]
    assert {7, 8, 9} <= set(source["Loss"])
    assert len(source) <= 4002
    assert drawn.remark.endswith("points drawn; the extremes of each stretch are kept.")


@pytest.mark.parametrize(
    ("x", "unit", "last"),
    [("step", "steps", 600), ("tokens_seen", "million tokens", 1.2288), ("seconds", "minutes", 4.99)],
)
def test_what_runs_along_the_bottom_has_a_unit_that_fits(x, unit: str, last: float) -> None:
    drawn = drawing([line("a", series(600, loss=np.ones(600)))], x=x, log=False, smoothing=0)
    assert drawn.option["xAxis"][-1]["name"] == unit
    assert drawn.option["dataset"][0]["source"]["x"].iloc[-1] == pytest.approx(last, rel=1e-3)


def test_memory_is_shown_in_binary_units() -> None:
    drawn = drawing([line("a", series(3, device_memory_bytes=np.full(3, 3 * 2**30)))], x="step", log=False, smoothing=0)
    assert drawn.option["title"][0]["text"] == "Device memory (GiB)"
    assert drawn.option["dataset"][0]["source"]["Device memory"].tolist() == [3, 3, 3]


def test_a_logarithmic_loss_leaves_out_what_has_no_logarithm() -> None:
    read = series(3, loss=np.array([1.0, 0.0, -1.0]), learning_rate=np.ones(3))
    drawn = drawing([line("a", read)], x="step", log=True, smoothing=0)
    assert [axis["type"] for axis in drawn.option["yAxis"]] == ["log", "value"]
    assert drawn.option["dataset"][0]["source"]["Loss"].isna().tolist() == [False, True, True]


def test_two_runs_share_panels_and_are_told_apart_by_a_legend() -> None:
    first, second = series(10, loss=np.ones(10)), series(20, loss=np.ones(20), grad_norm=np.ones(20))
    drawn = drawing([line("a", first), line("b", second)], x="step", log=False, smoothing=0)
    assert drawn.option["legend"]["show"]
    assert [part["name"] for part in drawn.option["series"]] == ["a", "b", "b"]
    assert [part["xAxisIndex"] for part in drawn.option["series"]] == [0, 0, 1]


def test_apart_from_its_data_the_drawing_is_plain_json() -> None:
    drawn = drawing([line("<b>", series(5, loss=np.ones(5)))], x="step", log=False, smoothing=0)
    json.dumps({key: value for key, value in drawn.option.items() if key != "dataset"}, allow_nan=False)


def test_nothing_measured_is_an_empty_drawing() -> None:
    drawn = drawing([line("a", series(0))], x="step", log=False, smoothing=0.5)
    assert (drawn.option["series"], drawn.total) == ([], 0)
