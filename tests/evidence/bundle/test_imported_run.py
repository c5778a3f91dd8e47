"""An import in a bundle: packed, verified, masked; and a mask is no way to change what was read from other files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.grade import check_run
from evidence.records.importing import import_run
from evidence.run import read_run

CASES = Path(__file__).parents[2] / "cases" / "foreign"
NOW = datetime(2026, 11, 20, 15, 30, 12, tzinfo=UTC)


def test_a_bundle_of_an_import_holds(tmp_path: Path) -> None:
    made = import_run(CASES / "hf_trainer" / "folder", name="theirs", root=tmp_path / "runs", now=NOW)
    build_bundle([made.path], tmp_path / "b.zip", allow_partial=True)
    verdict = verify_bundle(tmp_path / "b.zip")
    assert verdict.ok
    assert [run.grade for run in verdict.runs] == ["measured"]


def test_a_masked_original_is_told_and_changes_no_grade(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "train.log").write_text("Saved to /home/somebody/model\nstep 1 loss: 2.0\nstep 2 loss: 1.5\n")
    made = import_run(theirs, name="theirs", root=tmp_path / "runs", now=NOW)
    report = build_bundle([made.path], tmp_path / "b.zip", allow_partial=True, redact=True)
    assert [Path(each.path).name for each in report.redactions] == ["train.log"]
    verdict = verify_bundle(tmp_path / "b.zip")
    assert verdict.ok
    assert [run.grade for run in verdict.runs] == ["measured"]


def test_a_changed_original_excuses_only_what_was_read_from_it(tmp_path: Path) -> None:
    run = import_run(CASES / "hf_trainer" / "folder", name="theirs", root=tmp_path, now=NOW).path
    (run / "original" / "config.json").write_text("{}")
    assert [problem.code for problem in check_run(read_run(run)).findings] == ["TP231"]
    document = json.loads((run / "import.json").read_text("utf-8"))
    document["scores"][1]["value"] = 0.99
    (run / "import.json").write_text(json.dumps(document), "utf-8")
    assert [problem.code for problem in check_run(read_run(run)).findings] == ["TP231", "TP375"]
