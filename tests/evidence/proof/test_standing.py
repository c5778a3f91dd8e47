"""`verified` comes from outside the folder: a receipt of this user, not one that came with the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from evidence.index.check import check_paths
from evidence.index.runs import RunIndex
from evidence.judge.report_forms import report_text
from evidence.proof.receipts import keep_receipt, own_receipts, run_sha256
from evidence.run.layout import MANIFEST, RECEIPTS


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs", "run")


def receipt(run: Path, *, result: str = "identical", said: str = "5 of 5 segments are identical.") -> dict[str, Any]:
    manifest = json.loads((run / MANIFEST).read_text())
    return {
        "schema_version": "1.1",
        "kind": "replay",
        "run_id": manifest["run_id"],
        "run_sha256": run_sha256(run),
        "made_at": "2026-11-23T20:15:00.000+00:00",
        "made_by": {"version": "1", "commit": None},
        "environment": manifest["environment"],
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "covered": {
            "segments": [{"first_step": 0, "last_step": 5, "verdict": result}],
            "items": {"drawn": 0, "identical": 0, "within_tolerance": 0, "different": 0},
        },
        "result": result,
        "said": said,
    }


def grade(run: Path) -> tuple[str, tuple[str, ...]]:
    report = check_paths([run]).runs[0]
    return report.grade.name, report.grade.reasons


def test_the_folder_alone_is_consistent_and_this_users_receipt_makes_it_verified(run: Path) -> None:
    assert grade(run)[0] == "consistent"
    kept = keep_receipt(receipt(run))
    assert kept.parent.parent == own_receipts()
    name, reasons = grade(run)
    assert name == "verified"
    assert reasons[0] == "Checked by you on 2026-11-23: 5 of 5 segments are identical."


def test_two_receipts_of_a_day_that_say_the_same_are_both_kept_and_said_once(run: Path) -> None:
    first = keep_receipt(receipt(run))
    second = keep_receipt({**receipt(run), "made_at": "2026-11-23T20:15:00.001+00:00"})
    assert first != second
    assert [each for each in grade(run)[1] if "Checked by you" in each] == [
        "Checked by you on 2026-11-23: 5 of 5 segments are identical."
    ]


def test_a_receipt_that_came_with_the_run_is_a_claim(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copytree(keep_receipt(receipt(run)).parent, run / RECEIPTS)
    assert grade(run)[0] == "verified"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another"))
    name, reasons = grade(run)
    assert name == "consistent"
    assert reasons[-1] == ("A claim, by nobody whom you trust, of 2026-11-23: 5 of 5 segments are identical.")


def test_a_sealed_receipt_that_was_edited_is_a_claim_about_nothing(run: Path) -> None:
    kept = keep_receipt(receipt(run, result="different", said="Step 3 differs."))
    assert (grade(run)[0], grade(run)[1][0]) == ("consistent", "Checked by you on 2026-11-23: Step 3 differs.")
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "result": "identical", "said": "All is identical."}))
    assert grade(run)[0] == "consistent"
    assert grade(run)[1][-1].startswith("A claim, by nobody whom you trust")


def test_a_receipt_is_for_the_run_as_it_was(run: Path) -> None:
    keep_receipt(receipt(run))
    (run / MANIFEST).write_text((run / MANIFEST).read_text() + "\n")
    assert grade(run)[0] == "consistent"


def test_a_list_of_runs_sees_a_receipt_that_is_made_while_it_stands(run: Path) -> None:
    index = RunIndex(run.parent)
    assert [summary.grade for summary in index.refresh()] == ["consistent"]
    keep_receipt(receipt(run))
    assert [summary.grade for summary in index.refresh()] == ["verified"]


def test_a_damaged_receipt_is_passed_over(run: Path) -> None:
    (run / RECEIPTS).mkdir()
    (run / RECEIPTS / "replay-1.json").write_text("{")
    (run / RECEIPTS / "replay-2.json").write_text(json.dumps({**receipt(run), "run_sha256": "0" * 64}))
    assert grade(run)[0] == "consistent"


@pytest.mark.parametrize("trained", [None, 0])
def test_a_receipt_that_repeats_nothing_of_the_training_says_nothing(run: Path, trained: int | None) -> None:
    document = receipt(run, said="Replayed 0 of 5 segments and 50 of 100 answers: identical.")
    document["covered"]["segments"][0]["verdict"] = "not tried"
    items = {"drawn": 50, "identical": 50, "within_tolerance": 0, "different": 0}
    document["covered"]["items"] = items if trained is None else {**items, "trained": trained}
    keep_receipt(document)
    name, reasons = grade(run)
    assert name == "consistent"
    assert reasons[0].endswith("it says nothing of the run.")


def test_answers_of_the_trained_model_alone_are_a_repetition(run: Path) -> None:
    document = receipt(run)
    document["covered"]["segments"][0]["verdict"] = "not tried"
    document["covered"]["items"] = {
        "drawn": 10,
        "identical": 0,
        "within_tolerance": 10,
        "different": 0,
        "trained": 10,
    }
    keep_receipt({**document, "result": "within tolerance"})
    assert grade(run)[0] == "verified"


def test_a_receipt_is_as_bad_as_its_worst_part(run: Path) -> None:
    document = receipt(run)
    document["covered"]["items"] = {"drawn": 100, "identical": 40, "within_tolerance": 0, "different": 60}
    keep_receipt(document)
    assert grade(run)[0] == "consistent"


def test_a_report_says_who_verified_a_run(run: Path) -> None:
    keep_receipt(receipt(run))
    said = "  Checked by you on 2026-11-23: 5 of 5 segments are identical.\n"
    assert report_text(check_paths([run])) == f"{run}  verified\n{said}1 run: 1 verified; nothing found.\n"
