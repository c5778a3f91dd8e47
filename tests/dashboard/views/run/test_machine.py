from pathlib import Path

from dashboard.shared.charts.theme import LIGHT
from dashboard.views.run.sections import describe_machine, draw_machine
from schemas.reading import read_rows

ROWS = read_rows(Path("tests/cases/documents/valid/system_row.plain.jsonl"), "system_row").values
"""A row of a machine with two devices, and a row without device sensors."""


def test_each_line_is_in_the_unit_of_its_panel():
    drawn = {(trace.yaxis or "y", trace.name): list(trace.y) for trace in draw_machine(ROWS, LIGHT).data}
    assert drawn["y", "host memory"] == [row["host_memory_used_bytes"] / 2**30 for row in ROWS]
    assert drawn["y", "memory of device 0"] == [8123456789 / 2**30, None]
    assert drawn["y", "memory of device 1"] == [None, None]
    assert drawn["y2", "load of device 0"] == [97.0, None]
    assert drawn["y3", "waiting for data"] == [0.4, None]


def test_a_cpu_has_no_device_lines():
    assert not [trace.name for trace in draw_machine(ROWS[1:], LIGHT).data if "device" in trace.name]


def test_the_last_readings_and_missing_sensors_are_described():
    assert describe_machine(ROWS[:1]) == "Now device 0: 61 °C; device 1: 58 °C; device 0: 70 W."
    assert describe_machine(ROWS) == "No device sensor for utilisation, temperature, power, memory."
