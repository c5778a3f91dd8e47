from __future__ import annotations

import json
from pathlib import Path

from dashboard.shared.charts import foreign_run
from dashboard.shared.files import Series
from evidence.imports.folder import read_tool_folder
from evidence.imports.run import Citation, FileReading, ImportedRun, MetricRow

CASES = Path(__file__).parents[3] / "cases" / "foreign"


def points(series: Series | None) -> list[tuple[float, float]]:
    assert series is not None
    return list(zip(series.columns["step"].tolist(), series.columns["loss"].tolist(), strict=True))


def test_the_curve_of_another_tool_says_where_it_stands() -> None:
    view = read_tool_folder(CASES / "hf_trainer" / "folder")
    line, origin = foreign_run.build_line("a", view)
    assert line.series.columns["step"].tolist() == sorted(line.series.columns["step"])
    assert line.series.has("loss")
    assert origin.startswith("Read from trainer_state.json, lines ")


def test_losses_of_evaluations_come_in_the_order_of_their_steps_and_once_for_each(tmp_path: Path) -> None:
    history = [{"loss": 2.5, "step": 50}, {"loss": 1.9, "step": 100}, {"eval_loss": 1.8, "step": 100}]
    history += [{"eval_loss": 2.2, "step": 50}, {"eval_loss": 7.0, "step": 50}, {"eval_loss": 1.7}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 100, "log_history": history}))
    line, _ = foreign_run.build_line("a", read_tool_folder(tmp_path))
    assert points(line.evaluation) == [(50, 2.2), (100, 1.8)]


def test_an_evaluation_of_another_file_or_stage_is_not_drawn_on_a_curve() -> None:
    def row(file: str, stage: int, **values: float) -> MetricRow:
        return MetricRow(values=dict(values), source=Citation(file=file, line=1), stage=stage)

    metrics = [row("a.log", 2, step=2, eval_loss=8.0)]
    metrics += [row("b.log", 1, step=1, loss=2.0), row("b.log", 1, step=1, eval_loss=9.0)]
    metrics += [row("b.log", 2, step=step, loss=1.0) for step in (1, 2, 3)]
    metrics += [row("b.log", 2, step=3, eval_loss=1.5)]
    view = ImportedRun(path=Path("folder"), files={"both": FileReading(metrics=tuple(metrics))})
    line, _ = foreign_run.build_line("a", view)
    assert points(line.evaluation) == [(3, 1.5)]


def test_a_run_with_losses_of_evaluations_alone_says_where_they_stand(tmp_path: Path) -> None:
    history = [{"eval_loss": 2.1, "step": 50}, {"eval_loss": 1.9, "step": 100}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 100, "log_history": history}))
    line, origin = foreign_run.build_line("a", read_tool_folder(tmp_path))
    assert (line.series.rows, line.rows, points(line.evaluation)) == (0, 2, [(50, 2.1), (100, 1.9)])
    assert origin.startswith("Read from trainer_state.json")


def test_losses_without_steps_have_no_place_for_what_is_of_a_step(tmp_path: Path) -> None:
    history = [{"loss": 2.5, "epoch": 0.5}, {"loss": 1.9, "epoch": 1.0}]
    history += [{"eval_accuracy": 0.41, "eval_loss": 2.0, "step": 50}]
    state = {"global_step": 100, "max_steps": 100, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    line, _ = foreign_run.build_line("a", read_tool_folder(tmp_path))
    assert (line.series.rows, line.evaluation) == (2, None)


def test_every_case_draws_something_or_nothing_and_never_fails() -> None:
    for folder in sorted(CASES.iterdir()):
        view = read_tool_folder(folder / "folder")
        line, _ = foreign_run.build_line("a", view)
        for _, series in line.parts():
            assert len({len(column) for column in series.columns.values()}) == 1
        assert len(foreign_run.figures(view)) == 7
        assert len(foreign_run.file_rows(view)) == len(view.files)
        assert len(foreign_run.prediction_rows(view)) == len(view.predictions)
