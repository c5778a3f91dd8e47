"""What is shown of a run: withheld figures and the state of its documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mutations import apply
from synthetic import write_rows, write_run

from evidence.compare.scores import compare_runs
from evidence.grade import check_run
from evidence.index.index import index_runs
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS, PREDICTIONS
from evidence.report import DocumentState, JudgedRecord, build_record
from evidence.run import read_run
from trainproof.terminal.comparisons import as_text
from trainproof.terminal.runs import run_json, run_text

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
    by_name = {summary.path.name: summary for summary in index_runs(tmp_path)}
    listed = by_name["other-rate"]
    assert (listed.last_loss, listed.tokens_seen, listed.withheld) == (None, None, (NO_LOSSES,))
    assert not [name for name in listed.figures if name.startswith("last.") or name == "result.last_loss"]
    assert by_name["sound"].withheld == ()
    comparison = compare_runs([read_run(tmp_path / "sound"), run])
    figures = {figure.name: figure.value for figure in comparison.headlines[1]}
    assert (figures["last loss"], figures["tokens seen"], figures["speed"]) == (None, None, None)
    assert comparison.withheld == ((), (NO_LOSSES,))
    assert f"  other-rate: {NO_LOSSES}\n" in as_text(comparison)
    assert NO_LOSSES in run_text(run)
    assert run_json(run)["withheld"] == [NO_LOSSES]


def test_forged_figure_is_withheld(tmp_path: Path):
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    record = recorded(folder)
    assert record.withheld == ("best_loss is not shown, because run_manifest.json contradicts the rows.",)
    assert record.figures.best_loss is None
    assert record.figures.last_loss is not None


def test_scores_are_withheld_together(tmp_path: Path):
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "eval_summary.json", "pointer": "/metrics/exact_match/value", "value": 0.99})
    record = recorded(folder)
    assert record.withheld == ("Scores are not shown, because eval_summary.json has errors.",)
    assert record.facts.eval_summary is None


def test_running_run_shows_figures_of_its_rows(tmp_path: Path):
    folder = write_run(tmp_path, "run", status="running")
    record, (listed,) = recorded(folder), index_runs(tmp_path)
    last = record.facts.metrics[-1] if record.facts.metrics else {}
    assert (record.figures.last_loss, record.figures.steps_done) == (last["loss"], last["step"])
    assert (listed.last_loss, listed.steps_done, listed.tokens_seen) == (
        last["loss"],
        last["step"],
        last["tokens_seen"],
    )


FOREIGN = Path(__file__).parents[1] / "cases" / "foreign"


def documents(root: Path) -> dict[str, DocumentState]:
    (summary,) = index_runs(root)
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


def test_forged_summary(tmp_path: Path) -> None:
    path = write_run(tmp_path, "alpha") / EVAL_SUMMARY
    document = json.loads(path.read_text("utf-8"))
    document["metrics"]["exact_match"]["value"] = 0.99
    path.write_text(json.dumps(document), "utf-8")
    found = documents(tmp_path)
    assert (found[EVAL_SUMMARY].mark, found[EVAL_SUMMARY].seal) == ("wrong", "differs")
    assert (found[METRICS].mark, found[METRICS].seal) == ("valid", "matches")


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
