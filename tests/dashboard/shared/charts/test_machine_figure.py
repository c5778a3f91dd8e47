"""The picture of the machine at work: which lines it has, in which units, and what it says that no sensor tells."""

from pathlib import Path

from dashboard.shared.charts.machine_figure import describe, draw, lines
from dashboard.shared.charts.plan_figures import LIGHT
from schemas.reading import read_rows

ROWS = read_rows(Path("tests/cases/documents/valid/system_row.plain.jsonl"), "system_row").values
"""The first row of a machine with two devices, the second of one that tells nothing of them."""


def test_each_line_has_its_values_in_the_unit_of_its_panel():
    picture = draw(ROWS, LIGHT)
    drawn = {trace.name: list(trace.y) for trace in picture.data}
    assert drawn["host, GiB"] == [row["host_memory_used_bytes"] / 2**30 for row in ROWS]
    assert drawn["device 0, GiB"] == [8123456789 / 2**30, None]
    assert drawn["device 1, GiB"] == [None, None]
    assert drawn["device 0, %"] == [97.0, None]
    assert drawn["share of time, %"] == [0.4, None]
    assert {trace.yaxis for trace in picture.data} == {"y", "y2", "y3"}


def test_a_cpu_has_no_line_of_devices():
    assert [name for name, _ in lines(ROWS[1:], "Memory")] == ["host", "this process"]


def test_what_is_told_and_what_is_not_are_said():
    assert describe(ROWS[:1]) == "Now device 0: 61 °C; device 1: 58 °C; device 0: 70 W."
    assert describe(ROWS) == "No sensor tells the device's utilisation, temperature, power, memory."
