from __future__ import annotations

from pathlib import Path

from dashboard.logic import foreign_run
from evidence.foreign.read import read_foreign

CASES = Path(__file__).parents[2] / "cases" / "foreign"


def test_the_curve_of_another_tool_says_where_it_stands() -> None:
    view = read_foreign(CASES / "hf_trainer" / "folder")
    series, origin = foreign_run.series_of(view)
    assert series.columns["step"].tolist() == sorted(series.columns["step"])
    assert series.has("loss")
    assert origin.startswith("Read from trainer_state.json, lines ")


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
