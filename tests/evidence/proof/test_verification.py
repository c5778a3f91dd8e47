"""`verified` comes from outside the folder: a receipt of this user, not one that came with the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from evidence.index.check import check_paths
from evidence.index.runs import RunIndex
from evidence.judge.report import report_text
from evidence.proof.coverage import Coverage, RunExtent, load_extent, measure_coverage, merge_segments
from evidence.proof.receipts import own_receipts_folder, run_sha256, save_receipt
from evidence.run.layout import MANIFEST, RECEIPTS


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs", "run")


def receipt(
    run: Path,
    *,
    result: str = "identical",
    said: str = "5 of 5 segments are identical.",
    segments: tuple[tuple[int, int], ...] = ((0, 10), (10, 20)),
    trained: int = 12,
    **more: Any,
) -> dict[str, Any]:
    """Return what somebody found who repeated a run of 20 steps with 12 answers before and after training."""
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
            "segments": [{"first_step": a, "last_step": b, "verdict": result} for a, b in segments],
            "items": {
                "drawn": trained,
                "identical": trained,
                "within_tolerance": 0,
                "different": 0,
                "trained": trained,
            },
        },
        "result": result,
        "said": said,
        **more,
    }


def drawn(run: Path, *, caught_half: float, segments: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    """Return a receipt of version 1.2 of which a judge's number drew the parts."""
    document = receipt(run, segments=segments, schema_version="1.2")
    document["covered"]["items"]["given_again"] = {"trained": 12, "untrained": 12}
    document["covered"]["draw"] = {
        "number": 4711,
        "parts": 20,
        "could_be_drawn": 18,
        "named": [first for first, _ in segments[1:-1]],
        "repeated": len(segments) - 2,
        "caught_half": caught_half,
    }
    return document


def grade(run: Path) -> tuple[str, tuple[str, ...]]:
    report = check_paths([run]).runs[0]
    return report.grade.name, report.grade.reasons


def test_the_folder_alone_is_consistent_and_this_users_receipt_makes_it_verified(run: Path) -> None:
    assert grade(run)[0] == "consistent"
    kept = save_receipt(receipt(run))
    assert kept.parent.parent == own_receipts_folder()
    name, reasons = grade(run)
    assert name == "verified"
    assert reasons[0] == "Checked by you on 2026-11-23: 5 of 5 segments are identical."


def test_two_receipts_of_a_day_that_say_the_same_are_both_kept_and_said_once(run: Path) -> None:
    first = save_receipt(receipt(run))
    second = save_receipt({**receipt(run), "made_at": "2026-11-23T20:15:00.001+00:00"})
    assert first != second
    assert [each for each in grade(run)[1] if "Checked by you" in each] == [
        "Checked by you on 2026-11-23: 5 of 5 segments are identical."
    ]


def test_a_receipt_that_came_with_the_run_is_a_claim(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copytree(save_receipt(receipt(run)).parent, run / RECEIPTS)
    assert grade(run)[0] == "verified"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another"))
    name, reasons = grade(run)
    assert name == "consistent"
    assert reasons[-1] == ("Unverified claim by an unknown person on 2026-11-23: 5 of 5 segments are identical.")


def test_a_sealed_receipt_that_was_edited_is_a_claim_about_nothing(run: Path) -> None:
    kept = save_receipt(receipt(run, result="different", said="Step 3 differs."))
    assert (grade(run)[0], grade(run)[1][0]) == ("consistent", "Checked by you on 2026-11-23: Step 3 differs.")
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "result": "identical", "said": "All is identical."}))
    assert grade(run)[0] == "consistent"
    assert grade(run)[1][-1].startswith("Unverified claim by an unknown person")


def test_a_receipt_is_for_the_run_as_it_was(run: Path) -> None:
    save_receipt(receipt(run))
    (run / MANIFEST).write_text((run / MANIFEST).read_text() + "\n")
    assert grade(run)[0] == "consistent"


def test_a_list_of_runs_sees_a_receipt_that_is_made_while_it_stands(run: Path) -> None:
    index = RunIndex(run.parent)
    assert [summary.grade for summary in index.refresh()] == ["consistent"]
    save_receipt(receipt(run))
    assert [summary.grade for summary in index.refresh()] == ["verified"]


def test_a_damaged_receipt_is_passed_over(run: Path) -> None:
    (run / RECEIPTS).mkdir()
    (run / RECEIPTS / "replay-1.json").write_text("{")
    (run / RECEIPTS / "replay-2.json").write_text(json.dumps({**receipt(run), "run_sha256": "0" * 64}))
    assert grade(run)[0] == "consistent"


def lacking(run: Path) -> str:
    name, reasons = grade(run)
    assert name == "consistent"
    return " ".join(reasons)


def test_the_first_steps_and_some_answers_are_never_enough(run: Path) -> None:
    """As a forger has it who trained two of twenty steps."""
    save_receipt(receipt(run, segments=((0, 1), (1, 2)), trained=10))
    said = lacking(run)
    assert (
        "Score partly reproduced: 10 of 12 answers of the trained model, 0 of 12 of the untrained one. Training "
        "partly reproduced: 2 of 20 steps, without its end." in said
    )
    assert "Not every answer of the trained model was given again" in said
    assert "The end of the training, whose parameters were evaluated, was not reached." in said
    assert check_paths([run]).runs[0].grade.words == ("consistent (score: 10 of 12 answers; training: 2 of 20 steps)")


def test_a_challenge_speaks_of_the_score_alone(run: Path) -> None:
    document = receipt(run, kind="challenge", segments=())
    del document["covered"]["items"]["trained"]
    save_receipt(document)
    said = lacking(run)
    assert "Score reproduced: 12 of 12 answers of the trained model, 0 of 12 of the untrained one." in said
    assert "Training not reproduced: 0 of 20 steps." in said
    save_receipt(receipt(run, trained=0, made_at="2026-11-24T20:15:00.000+00:00"))
    assert grade(run)[0] == "verified", "one of the two came from a challenge, the other from a replay"


def test_the_whole_training_without_the_answers_is_not_enough(run: Path) -> None:
    save_receipt(receipt(run, trained=0))
    assert "Score not reproduced: 0 of 12 answers of the trained model" in lacking(run)


def test_no_steps_are_no_repetition(run: Path) -> None:
    document = receipt(run)
    for segment in document["covered"]["segments"]:
        segment["verdict"] = "not tried"
    save_receipt(document)
    assert "Training not reproduced: 0 of 20 steps." in lacking(run)


def test_half_of_the_steps_with_the_end_is_enough_only_if_a_number_drew_them(run: Path) -> None:
    parts = ((0, 1), (4, 8), (12, 16), (19, 20))
    save_receipt(receipt(run, segments=parts))
    assert "Only 10 of 20 steps were repeated, and they were not drawn at random from the whole run." in lacking(run)
    save_receipt(drawn(run, caught_half=0.93, segments=parts))
    assert grade(run)[0] == "consistent", "half invented would be found with 93 %, and 95 % are asked for"
    save_receipt({**drawn(run, caught_half=0.96, segments=parts), "made_at": "2026-11-24T20:15:00.000+00:00"})
    assert grade(run)[0] == "verified"
    assert check_paths([run]).runs[0].grade.words == ("verified (score: 12 of 12 answers; training: 10 of 20 steps)")


def test_a_draw_without_the_end_is_not_enough(run: Path) -> None:
    save_receipt(drawn(run, caught_half=0.99, segments=((0, 1), (4, 8), (12, 16))))
    assert "The end of the training, whose parameters were evaluated, was not reached." in lacking(run)


def test_steps_that_two_receipts_cover_count_once() -> None:
    of = RunExtent(first_step=0, last_step=10)
    assert merge_segments([(2, 6), (0, 4), (8, 9), (9, 9), (5, 99)], of) == ((0, 10),)
    assert merge_segments([(0, 4), (2, 6), (8, 9)], of) == ((0, 6), (8, 9))


def test_a_receipt_of_more_steps_than_the_run_has_reaches_no_end_that_was_not_evaluated(run: Path) -> None:
    coverage = measure_coverage(receipt(run, segments=((0, 99),)), replace(load_extent(run), evaluated_step=15))
    assert (coverage.steps, coverage.is_end_reached) == (20, False)


def test_a_receipt_is_as_bad_as_its_worst_part(run: Path) -> None:
    document = receipt(run)
    document["covered"]["items"] = {"drawn": 100, "identical": 40, "within_tolerance": 0, "different": 60}
    save_receipt(document)
    assert grade(run)[0] == "consistent"


def test_a_report_says_who_verified_a_run(run: Path) -> None:
    save_receipt(receipt(run))
    said = "  Checked by you on 2026-11-23: 5 of 5 segments are identical.\n"
    beside = "verified (score: 12 of 12 answers; training: 20 of 20 steps)"
    assert report_text(check_paths([run])) == f"{run}  {beside}\n{said}1 run: 1 verified; nothing found.\n"


def test_of_a_run_that_was_not_evaluated_every_step_reaches_the_end_and_the_score_is_what_lacks() -> None:
    whole = Coverage(of=RunExtent(last_step=12), segments=((0, 12),))
    assert "Training reproduced: 12 of 12 steps, including its end." in whole.description
    assert list(whole.missing()) == ["The run was not evaluated, so it has no score to reproduce."]
    assert not whole.is_sufficient
    assert "6 of 12 steps, without its end" in replace(whole, segments=((0, 6),)).description
