"""Grades with their reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mutations import apply, reseal
from synthetic import seal, write_document, write_rows, write_run

from evidence.grade import CONSISTENT, GRADES, NEVER_STATED, check_run
from evidence.hashes import sha256_file
from evidence.run import read_run
from evidence.scores.recompute import compute_scores

COMMIT = "0123456789ab"
DIRTY = {"manifest": {"code": {"dirty": True, "diff_sha256": "a" * 64}}}
DIRTY_FILE = {"manifest": {"code": {"dirty": True, "diff_sha256": "a" * 64, "differs": ["trainer/run.py"]}}}
UNKNOWN_COMMIT = "The commit of the code is unknown: neither a git checkout nor the installation records it."
UNKNOWN = {"manifest": {"code": {"commit": None, "branch": None, "dirty": None}}}


def graded(folder: Path) -> tuple[str, tuple[str, ...]]:
    run = read_run(folder)
    grade = check_run(run).grade
    assert grade.name in GRADES
    return grade.name, grade.reasons


@pytest.mark.parametrize(
    ("arguments", "grade", "reasons"),
    [
        ({}, "consistent", (CONSISTENT, NEVER_STATED)),
        (DIRTY, "measured", (f"The code differed from commit {COMMIT}.",)),
        (DIRTY_FILE, "measured", (f"The code differed from commit {COMMIT}: trainer/run.py.",)),
        (
            UNKNOWN,
            "measured",
            ("The commit of the code is unknown: neither a git checkout nor the installation records it.",),
        ),
        ({"items": 0}, "measured", ("The run was not evaluated.",)),
        ({"status": "failed"}, "partial", ("The run failed after 10 of 20 steps.",)),
        ({"status": "interrupted"}, "partial", ("The run was interrupted after 10 of 20 steps.",)),
        ({"status": "running"}, "partial", ("The run was interrupted after 10 of 20 steps.",)),
        (
            {"status": "interrupted", "steps": 1},
            "template",
            ("No step and no answer was measured.", "The run was interrupted after 0 of 1 steps."),
        ),
        (
            {"manifest": {"model": {"name": "gemma"}}},
            "contradictory",
            ('run_manifest.json: model.name is "gemma" in the manifest and "own-model" in config.yaml.',),
        ),
    ],
)
def test_grade_and_reasons(tmp_path: Path, arguments: dict[str, Any], grade: str, reasons: tuple[str, ...]) -> None:
    assert graded(write_run(tmp_path, "run", **arguments)) == (grade, reasons)


def test_an_evaluation_without_any_output_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run")
    nothing = {"output_text": "", "extracted_answer": None, "correct": False, "format_ok": False}
    nothing |= {"output_tokens": 0, "finish_reason": "error", "error": "no room for the prompt"}
    rows = [json.loads(line) | nothing for line in (run / "predictions.jsonl").read_text().splitlines()]
    write_rows(run / "predictions.jsonl", rows)
    summary = json.loads((run / "eval_summary.json").read_text())
    summary |= compute_scores(rows)
    summary["predictions"]["sha256"] = sha256_file(run / "predictions.jsonl")
    write_document(run / "eval_summary.json", summary)
    seal(run)
    assert graded(run) == ("measured", ("None of the 12 evaluation items has an output.",))


def test_template_of_a_predecessor_is_a_template(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.json").write_text('{"status": "<PENDING>", "final_loss": "X.XXXX", "notes": "TBD"}')
    name, reasons = graded(tmp_path)
    assert name == "template"
    assert reasons[0] == "No step and no answer was measured."
    assert 'run_manifest.json: The value is still "<PENDING>".' in reasons


def test_empty_folder_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert graded(tmp_path / "empty") == ("not a run", ("empty: empty holds none of the files that a run writes.",))


def test_rows_alone_are_partial(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    for path in folder.iterdir():
        if path.name != "metrics.jsonl":
            path.unlink()
    assert graded(folder) == ("partial", ("run: run_manifest.json is missing.",))


def test_long_lists_of_reasons_are_cut_and_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    changes = {"model/name": "other", "model/weights": "pretrained", "optimizer/name": "adafactor"}
    changes |= {"optimizer/schedule": "linear", "memory/remat": "none", "mode": "smoke"}
    for name, value in changes.items():
        apply(folder, {"file": "config.yaml", "pointer": f"/{name}", "value": value})
    reseal(folder, [])
    name, reasons = graded(folder)
    assert (name, len(reasons), reasons[-1]) == ("contradictory", 6, "2 more.")
