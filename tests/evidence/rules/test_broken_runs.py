"""Valid runs have no findings, and broken ones exactly those of their case in tests/cases/runs.

`valid/<name>/run.json` contains the arguments of the run and its grade, `broken/<name>/change.json` the changes to a
valid run, and `problem.txt` the expected grade and findings. Set `WRITE_CASES=1` to rewrite them, then read the diff.
"""

import json
import os
from pathlib import Path

import pytest
from mutations import apply, reseal
from synthetic import write_run

from evidence.grade import check_run
from evidence.run import read_run
from schemas.render import render_text

CASES = Path(__file__).parents[2] / "cases" / "runs"
BROKEN = sorted(path.parent for path in CASES.glob("broken/*/change.json"))
VALID = sorted(path.parent for path in CASES.glob("valid/*/run.json"))


@pytest.mark.parametrize("case", BROKEN, ids=lambda path: path.name)
def test_broken_run_is_found_out(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broken = json.loads((case / "change.json").read_text("utf-8"))
    folder = write_run(Path(), "run", **broken.get("run", {}))
    for change in broken["changes"]:
        apply(folder, change)
    if broken.get("reseal"):
        reseal(folder, broken["changes"])
    report = check_run(read_run(folder))
    text = f"{report.grade.name}\n\n{render_text(report.findings)}"
    if os.environ.get("WRITE_CASES"):
        (case / "problem.txt").write_text(text, "utf-8")
    assert text == (case / "problem.txt").read_text("utf-8")
    has_errors = any(problem.severity == "error" for problem in report.findings)
    assert has_errors or report.findings[0].severity == "warning"
    assert report.grade.name != "consistent" or not has_errors


@pytest.mark.parametrize("case", VALID, ids=lambda path: path.name)
def test_valid_run_has_no_findings(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    valid = json.loads((case / "run.json").read_text("utf-8"))
    run = read_run(write_run(Path(), "run", **valid["run"]))
    assert render_text(check_run(run).findings) == ""
    assert check_run(run).grade.name == valid["grade"]


def test_there_are_enough_cases() -> None:
    assert len(BROKEN) >= 60
    assert len(VALID) >= 5
