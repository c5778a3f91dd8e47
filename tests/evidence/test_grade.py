"""Grades with their reasons, withheld figures, and the state of documents."""

import json
from pathlib import Path
from typing import Any

import pytest
from mutations import apply, reseal
from synthetic import seal, write_document, write_rows, write_run

from evidence.compare.scores import compare_runs
from evidence.grade import CONSISTENT, GRADES, NEVER_STATED, check_run
from evidence.hashes import sha256_file
from evidence.index.index import index_folder
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS, PREDICTIONS
from evidence.report import DocumentState, JudgedRecord, build_record
from evidence.run import read_run
from evidence.scores.recompute import compute_scores
from trainproof.cli.inspect import comparison_text, run_json, run_text

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
        (UNKNOWN, "measured", (UNKNOWN_COMMIT,)),
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


def test_long_lists_of_reasons_are_cut_and_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    changes = {"model/name": "other", "model/weights": "pretrained", "optimizer/name": "adafactor"}
    changes |= {"optimizer/schedule": "linear", "memory/remat": "none", "mode": "smoke"}
    for name, value in changes.items():
        apply(folder, {"file": "config.yaml", "pointer": f"/{name}", "value": value})
    reseal(folder, [])
    name, reasons = graded(folder)
    assert (name, len(reasons), reasons[-1]) == ("contradictory", 6, "2 more.")


NO_LOSSES = "Losses, tokens and speed are not shown, because metrics.jsonl has errors."


def recorded(folder: Path) -> JudgedRecord:
    run = read_run(folder)
    return build_record(run, check_run(run).findings)


@pytest.fixture
def other_rate(tmp_path: Path) -> Path:
    """Return a run whose configuration asks for another learning rate than its rows have."""
    folder = write_run(tmp_path, "other-rate")
    apply(folder, {"file": "config.yaml", "pointer": "/optimizer/learning_rate", "value": 0.01})
    return folder


def test_figures_are_withheld_everywhere_with_the_reason(other_rate: Path, tmp_path: Path):
    write_run(tmp_path, "sound", seed=1)
    run = read_run(other_rate)
    by_name = {summary.path.name: summary for summary in index_folder(tmp_path)}
    listed = by_name["other-rate"]
    assert (listed.last_loss, listed.tokens_seen, listed.withheld) == (None, None, (NO_LOSSES,))
    assert not [name for name in listed.figures if name.startswith("last.") or name == "result.last_loss"]
    assert by_name["sound"].withheld == ()
    comparison = compare_runs([read_run(tmp_path / "sound"), run])
    figures = {figure.name: figure.value for figure in comparison.headlines[1]}
    assert (figures["last loss"], figures["tokens seen"], figures["speed"]) == (None, None, None)
    assert comparison.withheld == ((), (NO_LOSSES,))
    assert f"  other-rate: {NO_LOSSES}\n" in comparison_text(comparison)
    assert NO_LOSSES in run_text(run)
    assert run_json(run)["withheld"] == [NO_LOSSES]


def test_forged_figure_and_all_scores_are_withheld(tmp_path: Path):
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    apply(folder, {"file": "eval_summary.json", "pointer": "/metrics/exact_match/value", "value": 0.99})
    record = recorded(folder)
    assert set(record.withheld) == {
        "best_loss is not shown, because run_manifest.json contradicts the rows.",
        "Scores are not shown, because eval_summary.json has errors.",
    }
    assert (record.figures.best_loss, record.facts.eval_summary) == (None, None)
    assert record.figures.last_loss is not None


def test_running_run_shows_figures_of_its_rows(tmp_path: Path):
    folder = write_run(tmp_path, "run", status="running")
    record, (listed,) = recorded(folder), index_folder(tmp_path)
    last = record.facts.metrics[-1] if record.facts.metrics else {}
    assert (record.figures.last_loss, record.figures.steps_done) == (last["loss"], last["step"])
    found = (listed.last_loss, listed.steps_done, listed.tokens_seen)
    assert found == (last["loss"], last["step"], last["tokens_seen"])


FOREIGN = Path(__file__).parents[1] / "cases" / "foreign"


def documents(root: Path) -> dict[str, DocumentState]:
    (summary,) = index_folder(root)
    return {state.name: state for state in summary.documents}


def test_documents_of_a_sealed_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "alpha", steps=20, items=12)
    found = documents(tmp_path)
    assert list(found) == [MANIFEST, EVAL_SUMMARY, LOG, METRICS, PREDICTIONS]
    assert {state.mark for state in found.values()} == {"valid"}
    version = json.loads((folder / MANIFEST).read_text("utf-8"))["schema_version"]
    assert {(state.schema, state.version) for state in found.values()} == {
        (kind, version) for kind in ("run_manifest", "eval_summary", "log_record", "metric_row", "prediction_row")
    }
    assert [found[name].rows for name in (METRICS, PREDICTIONS)] == [20, 12]
    assert [found[name].seal for name in (EVAL_SUMMARY, LOG, METRICS, PREDICTIONS)] == ["matches"] * 4
    assert found[MANIFEST].seal == "not stated", "the log of a synthetic run names no hash of the manifest"


def test_truncated_manifest(tmp_path: Path) -> None:
    path = write_run(tmp_path, "alpha") / MANIFEST
    path.write_text(path.read_text("utf-8")[:400], "utf-8")
    found = documents(tmp_path)
    assert (found[MANIFEST].mark, found[MANIFEST].version) == ("wrong", None)
    assert {state.seal for state in found.values()} == {"not checked"}


def test_missing_unlisted_and_unsealed_documents(tmp_path: Path) -> None:
    (write_run(tmp_path / "missing", "alpha") / PREDICTIONS).unlink()
    gone = documents(tmp_path / "missing")[PREDICTIONS]
    assert (gone.mark, gone.seal, gone.rows) == ("missing", "differs", None)
    folder = write_run(tmp_path / "late", "alpha", items=0)
    write_rows(folder / PREDICTIONS, [])
    late = documents(tmp_path / "late")
    assert (late[PREDICTIONS].mark, late[PREDICTIONS].seal) == ("wrong", "not listed")
    assert late[EVAL_SUMMARY].mark == "missing"
    write_run(tmp_path / "open", "alpha", status="running")
    assert documents(tmp_path / "open")[METRICS].seal == "not sealed"


def test_documents_of_another_tools_run(tmp_path: Path) -> None:
    (tmp_path / "hf").symlink_to(FOREIGN / "hf_trainer" / "folder", target_is_directory=True)
    found = documents(tmp_path)
    assert list(found) == ["facts", "scores", "rows", "answers"]
    assert found["rows"].mark == "another tool's"
    assert (found["rows"].rows or 0) > 0
    assert (found["answers"].mark, found["answers"].rows) == ("missing", 0)
