"""The documents of a run: valid, wrong, missing, sealed or not; and what stands in their place."""

from __future__ import annotations

import json
from pathlib import Path

from synthetic import write_rows, write_run

from evidence.index.index import index_runs
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS, PREDICTIONS
from evidence.report import DocumentState

FOREIGN = Path(__file__).parents[2] / "cases" / "foreign"


def documents(root: Path) -> dict[str, DocumentState]:
    (summary,) = index_runs(root)
    return {state.name: state for state in summary.documents}


def test_a_sealed_run_has_five_valid_documents_and_their_rows(tmp_path: Path) -> None:
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


def test_a_forged_summary_has_errors_and_another_hash(tmp_path: Path) -> None:
    path = write_run(tmp_path, "alpha") / EVAL_SUMMARY
    document = json.loads(path.read_text("utf-8"))
    document["metrics"]["exact_match"]["value"] = 0.99
    path.write_text(json.dumps(document), "utf-8")
    found = documents(tmp_path)
    assert (found[EVAL_SUMMARY].mark, found[EVAL_SUMMARY].seal) == ("wrong", "differs")
    assert (found[METRICS].mark, found[METRICS].seal) == ("valid", "matches")


def test_a_cut_manifest_vouches_for_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path, "alpha") / MANIFEST
    path.write_text(path.read_text("utf-8")[:400], "utf-8")
    found = documents(tmp_path)
    assert (found[MANIFEST].mark, found[MANIFEST].version) == ("wrong", None)
    assert {state.seal for state in found.values()} == {"not checked"}


def test_missing_late_and_unsealed_documents_are_told_apart(tmp_path: Path) -> None:
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


def test_a_copy_is_counted_among_the_errors(tmp_path: Path) -> None:
    write_run(tmp_path, "alpha")
    write_run(tmp_path, "copy", manifest={"run_id": "alpha"})
    assert all(any(state.mark == "wrong" for state in summary.documents) for summary in index_runs(tmp_path)), (
        "each is called a copy of the other"
    )


def test_another_tools_run_has_facts_scores_rows_and_answers_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "hf").symlink_to(FOREIGN / "hf_trainer" / "folder", target_is_directory=True)
    found = documents(tmp_path)
    assert list(found) == ["facts", "scores", "rows", "answers"]
    assert found["rows"].mark == "another tool's"
    assert (found["rows"].rows or 0) > 0
    assert (found["answers"].mark, found["answers"].rows) == ("missing", 0)
