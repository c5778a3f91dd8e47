"""The grade `verified`: receipts and their coverage."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from receipts import drawn_receipt, receipt
from synthetic import write_run

from evidence.grade import Grade
from evidence.index.index import RunIndex, check_paths
from evidence.layout import MANIFEST, RECEIPTS
from evidence.proof.receipts import (
    Coverage,
    RunExtent,
    load_extent,
    measure_coverage,
    merge_segments,
    own_receipts_folder,
    save_receipt,
)
from evidence.report import report_text

IDENTICAL = "Checked by you on 2026-11-23: 5 of 5 segments are identical."
LATER = "2026-11-24T20:15:00.000+00:00"
SEGMENTS = ((0, 1), (4, 8), (12, 16), (19, 20))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of 20 steps, with 12 answers before and after training."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    return write_run(tmp_path / "runs", "run")


def grade(run: Path) -> Grade:
    return check_paths([run]).runs[0].grade


def test_own_receipt_verifies_a_run(run: Path) -> None:
    assert grade(run).name == "consistent"
    index = RunIndex(run.parent)
    assert [summary.grade for summary in index.refresh()] == ["consistent"]
    first = save_receipt(receipt(run))
    assert first.parent.parent == own_receipts_folder()
    assert save_receipt(receipt(run, made_at="2026-11-23T20:15:00.001+00:00")) != first
    assert [each for each in grade(run).reasons if "Checked by" in each] == [IDENTICAL]  # both, mentioned once
    assert [summary.grade for summary in index.refresh()] == ["verified"]
    summary = "verified (reproduced: 12 of 12 answers, 20 of 20 steps)"
    text = f"{run}  {summary}\n  {IDENTICAL}\n1 run: 1 verified; nothing found.\n"
    assert report_text(check_paths([run])) == text
    (run / MANIFEST).write_text((run / MANIFEST).read_text() + "\n")
    assert grade(run).name == "consistent"  # a receipt is for the run as it was


def test_receipt_from_the_run_folder_is_a_claim(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copytree(save_receipt(receipt(run)).parent, run / RECEIPTS)
    assert grade(run).name == "verified"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another"))
    claim = "Unverified claim by an unknown person on 2026-11-23: 5 of 5 segments are identical."
    assert (grade(run).name, grade(run).reasons[-1]) == ("consistent", claim)


def test_negative_and_edited_receipts(run: Path) -> None:
    kept = save_receipt(receipt(run, result="different", said="Step 3 differs."))
    assert (grade(run).name, grade(run).reasons[0]) == ("consistent", "Checked by you on 2026-11-23: Step 3 differs.")
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"result": "identical", "said": "All is identical."}))
    assert (grade(run).name, grade(run).reasons[-1][:16]) == ("consistent", "Unverified claim")
    document = receipt(run, made_at=LATER)
    document["covered"]["items"] |= {"identical": 4, "different": 8}
    save_receipt(document)
    assert grade(run).name == "consistent"  # a receipt is as negative as its worst part


@pytest.mark.parametrize("change", ["damaged", "another run"])
def test_damaged_and_foreign_receipts_are_ignored(change: str, run: Path) -> None:
    (run / RECEIPTS).mkdir()
    text = "{" if change == "damaged" else json.dumps(receipt(run, run_sha256="0" * 64))
    (run / RECEIPTS / "replay.json").write_text(text)
    assert not any("claim" in reason for reason in grade(run).reasons)


def untried(run: Path) -> dict[str, Any]:
    document = receipt(run)
    for segment in document["covered"]["segments"]:
        segment["verdict"] = "not tried"
    return document


def challenge(run: Path) -> dict[str, Any]:
    document = receipt(run, kind="challenge", segments=())
    del document["covered"]["items"]["trained"]
    return document


NOT_ENOUGH: dict[str, tuple[Any, str]] = {
    "two of twenty steps": (
        lambda run: receipt(run, segments=((0, 1), (1, 2)), trained=10),
        "12 of the untrained one. Training partly reproduced: 2 of 20 steps, without its end. Not every answer",
    ),
    "no answers": (lambda run: receipt(run, trained=0), "Score not reproduced: 0 of 12 answers of the trained model"),
    "no steps": (untried, "Training not reproduced: 0 of 20 steps."),
    "a challenge": (challenge, "Score reproduced: 12 of 12 answers of the trained model"),
    "half the steps, not drawn": (
        lambda run: receipt(run, segments=SEGMENTS),
        "Only 10 of 20 steps were repeated, and they were not drawn at random from the whole run.",
    ),
    "too few drawn": (lambda run: drawn_receipt(run, 0.93, SEGMENTS), "Only 10 of 20 steps were repeated"),
    "drawn without the end": (
        lambda run: drawn_receipt(run, 0.99, SEGMENTS[:3]),
        "The end of the training, whose parameters were evaluated, was not reached.",
    ),
}


@pytest.mark.parametrize("name", NOT_ENOUGH)
def test_insufficient_coverage(name: str, run: Path) -> None:
    make, expected = NOT_ENOUGH[name]
    save_receipt(make(run))
    assert grade(run).name == "consistent"
    assert expected in " ".join(grade(run).reasons)


def test_enough_drawn_steps(run: Path) -> None:
    save_receipt(drawn_receipt(run, 0.96, SEGMENTS))
    assert grade(run).words == "verified (reproduced: 12 of 12 answers, 10 of 20 steps)"


def test_challenge_and_replay_add_up(run: Path) -> None:
    save_receipt(challenge(run))
    save_receipt(receipt(run, trained=0, made_at=LATER))
    assert grade(run).name == "verified"


def test_overlapping_segments_count_once(run: Path) -> None:
    of = RunExtent(first_step=0, last_step=10)
    assert merge_segments([(2, 6), (0, 4), (8, 9), (9, 9), (5, 99)], of) == ((0, 10),)
    assert merge_segments([(0, 4), (2, 6), (8, 9)], of) == ((0, 6), (8, 9))
    coverage = measure_coverage(receipt(run, segments=((0, 99),)), replace(load_extent(run), evaluated_step=15))
    assert (coverage.steps, coverage.is_end_reached) == (20, False)


def test_unevaluated_run_is_not_verified() -> None:
    whole = Coverage(of=RunExtent(last_step=12), segments=((0, 12),))
    assert "Training reproduced: 12 of 12 steps, including its end." in whole.description
    assert whole.missing() == ["The run was not evaluated, so there is no score to reproduce."]
    assert "6 of 12 steps, without its end" in replace(whole, segments=((0, 6),)).description
