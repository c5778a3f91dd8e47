"""What no machine can do, and dates that cannot be, are found; no real run is accused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from synthetic import write_run

from evidence.grade import find_problems
from evidence.run import read_run

HONEST = Path(__file__).parents[3] / "benchmarks" / "results" / "honest_runs.json"


@pytest.mark.parametrize("days", [-173 * 365, 173 * 365])
def test_a_day_that_cannot_be_is_unusual(tmp_path: Path, days: int) -> None:
    started = datetime(2026, 11, 20, 12, tzinfo=UTC) + timedelta(days=days)
    run = write_run(tmp_path, "run", started=started)
    assert "TP442" in {each.code for each in find_problems(read_run(run))}


def test_no_real_run_of_the_sample_is_unusual() -> None:
    """The sample was trained by benchmarks/honest_runs.py; what is kept of it states every code that was found."""
    sample = json.loads(HONEST.read_text("utf-8"))
    assert sample["runs"] == len(sample["rows"]) >= 150
    unusual = [
        row["name"] for row in sample["rows"] if any(code.startswith(("TP38", "TP43", "TP44")) for code in row["codes"])
    ]
    assert unusual == []
