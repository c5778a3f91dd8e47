"""A run of the present version that leaves out what its recorder writes is measured at most; an older one reads on."""

from __future__ import annotations

from pathlib import Path

from synthetic import write_run

from evidence.grade import check_run
from evidence.run import read_run


def test_what_the_recorder_writes_is_not_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run", manifest={"schema_version": "1.1"})
    report = check_run(read_run(run))
    said = [each.what for each in report.findings if each.code == "TP525"]
    assert "run_manifest.json does not state committed_at and source of the code." in said
    assert "run_manifest.json does not state what came of each setting (effective)." in said
    assert any(what.startswith("The row of step 1 does not state padding_fraction.") for what in said)
    assert report.grade.name in {"measured", "contradictory"}
    # Fewer events are no way around the rule on them.
    assert "TP365" in {each.code for each in report.findings}


def test_a_run_of_before_is_not_asked_for_it(tmp_path: Path) -> None:
    report = check_run(read_run(write_run(tmp_path, "run")))
    assert report.grade.name == "consistent"
    assert report.findings == ()
