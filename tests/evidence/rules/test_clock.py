"""A system clock that is set back is no contradiction; a time that was edited afterwards is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import seal, write_rows, write_run

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run

Row = dict[str, Any]


def moved(row: Row, key: str, seconds: float) -> None:
    row[key] = (datetime.fromisoformat(row[key]) + timedelta(seconds=seconds)).isoformat()


def rewritten(folder: Path, name: str, change: Callable[[int, Row], None]) -> None:
    rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        change(number, row)
    write_rows(folder / name, rows)


def errors(folder: Path) -> set[str]:
    return {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}


def set_back(folder: Path, seconds: float, *, has_clock: bool) -> None:
    """Change a run without evaluation as if the clock had been set back after its tenth step."""
    metrics = [json.loads(line) for line in (folder / layout.METRICS).read_text("utf-8").splitlines()]
    at = datetime.fromisoformat(metrics[9]["time"])

    def later(_: int, row: Row) -> None:
        if has_clock:
            row["clock_seconds"] = datetime.fromisoformat(row["time"]).timestamp() - at.timestamp() + 5000
        if datetime.fromisoformat(row["time"]) > at:
            moved(row, "time", -seconds)

    rewritten(folder, layout.METRICS, later)
    rewritten(folder, layout.LOG, later)
    manifest = json.loads((folder / layout.MANIFEST).read_text("utf-8"))
    moved(manifest, "finished_at", -seconds)
    (folder / layout.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    seal(folder)


@pytest.mark.parametrize("seconds", [40, 3600])
@pytest.mark.parametrize("has_clock", [True, False], ids=["1.2", "1.0"])
def test_clock_set_back(tmp_path: Path, seconds: int, has_clock: bool) -> None:
    folder = write_run(tmp_path, "run", items=0)
    set_back(folder, seconds, has_clock=has_clock)
    report = check_run(read_run(folder))
    assert [each for each in report.findings if each.severity != "note"] == []
    assert report.grade.name == "measured"  # it has no evaluation


@pytest.mark.parametrize("place", [5, -1])
def test_edited_time(tmp_path: Path, place: int) -> None:
    folder = write_run(tmp_path, "run", items=0)
    rewritten(
        folder, layout.METRICS, lambda number, row: moved(row, "time", -600 * (number == (place if place > 0 else 19)))
    )
    seal(folder)
    assert "TP320" in errors(folder)


def test_edited_time_contradicts_clock_seconds(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", items=0)
    set_back(folder, 0, has_clock=True)
    rewritten(folder, layout.METRICS, lambda number, row: moved(row, "time", 7200 * (number == 5)))
    seal(folder)
    assert errors(folder) == {"TP320"}
