"""The smaller tabs of the Run page: settings and figures of the machine."""

from pathlib import Path

from synthetic import write_run

from dashboard.shared.charts.theme import LIGHT
from dashboard.views.run.sections import machine_figure, settings_frame
from evidence.run import read_run
from schemas.reading import read_rows

ROWS = read_rows(Path("tests/cases/documents/valid/system_row.plain.jsonl"), "system_row").values
"""A row of a machine with two devices, and a row without device sensors."""


def test_each_line_is_in_the_unit_of_its_panel():
    drawn = {(trace.yaxis or "y", trace.name): list(trace.y) for trace in machine_figure(ROWS, LIGHT).data}
    assert drawn["y", "host memory"] == [row["host_memory_used_bytes"] / 2**30 for row in ROWS]
    assert drawn["y", "memory of device 0"] == [8123456789 / 2**30, None]
    assert drawn["y", "memory of device 1"] == [None, None]
    assert drawn["y2", "load of device 0"] == [97.0, None]
    assert drawn["y3", "waiting for data"] == [0.4, None]


def test_a_cpu_has_no_device_lines():
    assert not [trace.name for trace in machine_figure(ROWS[1:], LIGHT).data if "device" in trace.name]


def test_settings_three_times_over_and_where_they_disagree(tmp_path: Path) -> None:
    config = {"optimizer": {"name": "adafactor"}, "mesh": {"device": "auto"}}
    run = read_run(write_run(tmp_path, "alpha", config=config, manifest={"training": {"optimizer": {"name": "adamw"}}}))
    found = settings_frame(run).set_index("Setting")
    assert found.loc["optimizer.name"].tolist() == ["≠", "adafactor", "adamw", "adamw", ""]
    # auto leaves the choice to the program, and parameters cannot be split over one device.
    assert found.loc["mesh.shard_params", "Remark"] == "Parameters cannot be sharded over one device."
    assert found.isna().loc["optimizer.beta1", "Effective"]
    assert found.isna().loc["model.name", "Default"]
    assert found.loc["limits.max_minutes", "Declared"] == "null"
    assert found.index[found["Differs"] == "≠"].tolist() == ["optimizer.name"]
    assert "optimizer.name" in settings_frame(run, only_changed=True)["Setting"].tolist()
    without = settings_frame(read_run(tmp_path))
    assert without["Declared"].isna().all()
    assert without["Effective"].isna().all()
