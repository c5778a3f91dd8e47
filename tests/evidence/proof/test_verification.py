"""`verified` comes from outside the folder: a receipt of this user, not one that came with the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from evidence.index.index import RunIndex, check_paths
from evidence.layout import MANIFEST, RECEIPTS
from evidence.proof.marks import Marks, Repeatable, marks_of, merge_steps, stated_of
from evidence.proof.receipts import keep_receipt, own_receipts, run_sha256
from evidence.report import report_text


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
    assert reasons[-1] == ("A claim, by an unknown person, of 2026-11-23: 5 of 5 segments are identical.")


def test_a_sealed_receipt_that_was_edited_is_a_claim_about_nothing(run: Path) -> None:
    kept = keep_receipt(receipt(run, result="different", said="Step 3 differs."))
    assert (grade(run)[0], grade(run)[1][0]) == ("consistent", "Checked by you on 2026-11-23: Step 3 differs.")
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "result": "identical", "said": "All is identical."}))
    assert grade(run)[0] == "consistent"
    assert grade(run)[1][-1].startswith("A claim, by an unknown person")


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


def lacking(run: Path) -> str:
    name, reasons = grade(run)
    assert name == "consistent"
    return " ".join(reasons)


def test_the_first_steps_and_some_answers_are_never_enough(run: Path) -> None:
    """As a forger has it who trained two of twenty steps."""
    keep_receipt(receipt(run, segments=((0, 1), (1, 2)), trained=10))
    said = lacking(run)
    assert (
        "Score repeated in part: 10 of 12 answers of the trained model, 0 of 12 of the untrained one. Training "
        "repeated in part: 2 of 20 steps, its end not among them." in said
    )
    assert "Not every answer of the trained model was given again" in said
    assert "The end of the training, whose parameters were evaluated, was not reached." in said
    assert check_paths([run]).runs[0].grade.words == ("consistent (score: 10 of 12 answers; training: 2 of 20 steps)")


def test_a_challenge_speaks_of_the_score_alone(run: Path) -> None:
    document = receipt(run, kind="challenge", segments=())
    del document["covered"]["items"]["trained"]
    keep_receipt(document)
    said = lacking(run)
    assert "Score repeated: 12 of 12 answers of the trained model, 0 of 12 of the untrained one." in said
    assert "Training not repeated: 0 of 20 steps." in said
    keep_receipt(receipt(run, trained=0, made_at="2026-11-24T20:15:00.000+00:00"))
    assert grade(run)[0] == "verified", "one of the two came from a challenge, the other from a replay"


def test_the_whole_training_without_the_answers_is_not_enough(run: Path) -> None:
    keep_receipt(receipt(run, trained=0))
    assert "Score not repeated: 0 of 12 answers of the trained model" in lacking(run)


def test_no_steps_are_no_repetition(run: Path) -> None:
    document = receipt(run)
    for segment in document["covered"]["segments"]:
        segment["verdict"] = "not tried"
    keep_receipt(document)
    assert "Training not repeated: 0 of 20 steps." in lacking(run)


def test_half_of_the_steps_with_the_end_is_enough_only_if_a_number_drew_them(run: Path) -> None:
    parts = ((0, 1), (4, 8), (12, 16), (19, 20))
    keep_receipt(receipt(run, segments=parts))
    assert "10 of 20 steps were repeated, and no number of a judge drew them among all parts of the run" in lacking(run)
    keep_receipt(drawn(run, caught_half=0.93, segments=parts))
    assert grade(run)[0] == "consistent", "half invented would be found with 93 %, and 95 % are asked for"
    keep_receipt({**drawn(run, caught_half=0.96, segments=parts), "made_at": "2026-11-24T20:15:00.000+00:00"})
    assert grade(run)[0] == "verified"
    assert check_paths([run]).runs[0].grade.words == ("verified (score: 12 of 12 answers; training: 10 of 20 steps)")


def test_a_draw_without_the_end_is_not_enough(run: Path) -> None:
    keep_receipt(drawn(run, caught_half=0.99, segments=((0, 1), (4, 8), (12, 16))))
    assert "The end of the training, whose parameters were evaluated, was not reached." in lacking(run)


def test_steps_that_two_receipts_cover_count_once() -> None:
    of = Repeatable(first_step=0, last_step=10)
    assert merge_steps([(2, 6), (0, 4), (8, 9), (9, 9), (5, 99)], of) == ((0, 10),)
    assert merge_steps([(0, 4), (2, 6), (8, 9)], of) == ((0, 6), (8, 9))


def test_a_receipt_of_more_steps_than_the_run_has_reaches_no_end_that_was_not_evaluated(run: Path) -> None:
    marks = marks_of(receipt(run, segments=((0, 99),)), replace(stated_of(run), evaluated_step=15))
    assert (marks.steps, marks.is_end_reached) == (20, False)


def test_a_receipt_is_as_bad_as_its_worst_part(run: Path) -> None:
    document = receipt(run)
    document["covered"]["items"] = {"drawn": 100, "identical": 40, "within_tolerance": 0, "different": 60}
    keep_receipt(document)
    assert grade(run)[0] == "consistent"


def test_a_report_says_who_verified_a_run(run: Path) -> None:
    keep_receipt(receipt(run))
    said = "  Checked by you on 2026-11-23: 5 of 5 segments are identical.\n"
    beside = "verified (score: 12 of 12 answers; training: 20 of 20 steps)"
    assert report_text(check_paths([run])) == f"{run}  {beside}\n{said}1 run: 1 verified; nothing found.\n"


def test_of_a_run_that_was_not_evaluated_every_step_reaches_the_end_and_the_score_is_what_lacks() -> None:
    whole = Marks(of=Repeatable(last_step=12), parts=((0, 12),))
    assert "Training repeated: 12 of 12 steps, its end among them." in whole.said
    assert list(whole.lacking()) == [
        "The run states no answer of the trained model: it was not evaluated, and has no score to repeat."
    ]
    assert not whole.is_enough
    assert "6 of 12 steps, its end not among them" in replace(whole, parts=((0, 6),)).said
