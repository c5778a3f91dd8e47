"""What is withheld in one place is withheld in every place, and each says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutations import apply
from synthetic import write_run

from evidence.compare.comparison import compare_runs
from evidence.grade import check_run
from evidence.index.index import index_runs
from evidence.report import JudgedRecord, build_record
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


def test_every_place_withholds_the_same_figures_and_says_why(other_rate: Path, tmp_path: Path):
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


def test_one_forged_figure_is_withheld_alone(tmp_path: Path):
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    record = recorded(folder)
    assert record.withheld == ("best_loss is not shown, because run_manifest.json contradicts the rows.",)
    assert record.figures.best_loss is None
    assert record.figures.last_loss is not None


def test_scores_are_withheld_as_a_whole(tmp_path: Path):
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "eval_summary.json", "pointer": "/metrics/exact_match/value", "value": 0.99})
    record = recorded(folder)
    assert record.withheld == ("Scores are not shown, because eval_summary.json has errors.",)
    assert record.facts.eval_summary is None


def test_a_run_under_way_shows_the_figures_of_its_rows_everywhere(tmp_path: Path):
    folder = write_run(tmp_path, "run", status="running")
    record, (listed,) = recorded(folder), index_runs(tmp_path)
    last = record.facts.metrics[-1] if record.facts.metrics else {}
    assert (record.figures.last_loss, record.figures.steps_done) == (last["loss"], last["step"])
    assert (listed.last_loss, listed.steps_done, listed.tokens_seen) == (
        last["loss"],
        last["step"],
        last["tokens_seen"],
    )
