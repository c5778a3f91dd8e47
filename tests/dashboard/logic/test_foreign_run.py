from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboard.logic import foreign_run
from evidence.foreign.read import read_foreign

CASES = Path(__file__).parents[2] / "cases" / "foreign"


def test_the_curve_of_another_tool_says_where_it_stands() -> None:
    view = read_foreign(CASES / "hf_trainer" / "folder")
    series, origin = foreign_run.series_of(view)
    assert series.columns["step"].tolist() == sorted(series.columns["step"])
    assert series.has("loss")
    assert origin.startswith("Read from trainer_state.json, lines ")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("per_checkpoint", [(100, "accuracy", 0.21), (200, "accuracy", 0.34)]),
        ("mlflow", [(30, "eval accuracy", 0.37)]),
        ("hf_trainer", []),  # A loss is no share, and its accuracy is of no step that it states.
        ("tunix_console", []),
    ],
)
def test_scores_of_a_known_step_have_a_place_on_the_curve(case: str, expected: list[tuple[int, str, float]]) -> None:
    marks = foreign_run.score_marks(read_foreign(CASES / case / "folder"))
    assert [(mark.at["step"], mark.text, mark.score) for mark in marks] == expected


def test_an_evaluation_in_the_log_of_the_trainer_has_a_place_on_the_curve(tmp_path: Path) -> None:
    history = [{"loss": 2.5, "step": 50}, {"eval_accuracy": 0.41, "eval_f1": 0.3, "eval_loss": 2.1, "step": 50}]
    history += [{"loss": 1.9, "step": 100}, {"eval_accuracy": 55.0, "step": 100}]  # Of per cent nothing is known.
    state = {"global_step": 100, "max_steps": 100, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    marks = foreign_run.score_marks(read_foreign(tmp_path))
    assert [(mark.at["step"], mark.text, mark.score) for mark in marks] == [(50, "eval accuracy", 0.41)]


def test_losses_without_steps_have_no_place_for_a_score_of_a_step(tmp_path: Path) -> None:
    history = [{"loss": 2.5, "epoch": 0.5}, {"loss": 1.9, "epoch": 1.0}, {"eval_accuracy": 0.41, "step": 50}]
    state = {"global_step": 100, "max_steps": 100, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert foreign_run.score_marks(read_foreign(tmp_path)) == ()


def test_what_was_inferred_is_marked() -> None:
    rows = [row for folder in sorted(CASES.iterdir()) for row in foreign_run.fact_rows(read_foreign(folder / "folder"))]
    assert {row[2] for row in rows} == {"stated", "≈ inferred"}
    assert all(row[3] for row in rows)


def test_every_case_draws_something_or_nothing_and_never_fails() -> None:
    for folder in sorted(CASES.iterdir()):
        view = read_foreign(folder / "folder")
        series, _ = foreign_run.series_of(view)
        assert len({len(column) for column in series.columns.values()}) == 1
        assert len(foreign_run.figures(view)) == 7
        assert len(foreign_run.file_rows(view)) == len(view.files)
        assert len(foreign_run.prediction_rows(view)) == len(view.predictions)
