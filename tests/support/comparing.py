"""Runs to compare, and their comparison."""

from pathlib import Path
from typing import Any

from synthetic import write_run

from evidence.compare.scores import Comparison, compare_runs
from evidence.grade import Grade, RunReport
from evidence.run import read_run


def runs_of(root: Path, *settings: dict[str, Any]) -> list[Path]:
    """Return runs a, b, c … of 30 items that differ in their seeds."""
    return [
        write_run(root, name, **{"items": 30, "seed": seed} | setting)
        for seed, (name, setting) in enumerate(zip("abcdef", settings, strict=False))
    ]


def compared(*folders: Path) -> Comparison:
    """Return the comparison as if nothing were wrong with the runs, so that a test may change one thing of one."""
    grade = Grade(name="consistent", reasons=("So it is said.",))
    runs = [read_run(folder) for folder in folders]
    return compare_runs(runs, [RunReport(path=run.path, grade=grade, findings=()) for run in runs])
