"""Curves of our runs, of resumed ones and of other tools; thinning, smoothing and CSV."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard.shared.charts import foreign_run
from dashboard.shared.charts.theme import LIGHT
from dashboard.shared.files import Series
from dashboard.shared.parts.curves import (
    DASHES,
    DOUBTFUL_DASH,
    POINTS,
    CurveOptions,
    CurvesChart,
    Mark,
    RecordedRun,
    RunLine,
    build_line,
    curves_csv,
    draw,
    line_with_parents,
    smooth,
    thin,
)
from evidence.imports.folder import read_tool_folder
from evidence.imports.run import Citation, FileReading, ImportedRun, MetricRow
from schemas.catalog import number_names

COLOURS = ("#1f5b8f", "#c0721d")


def series(steps: int, **columns: np.ndarray) -> Series:
    """Return rows with steps, tokens, times and these columns."""
    step = np.arange(1.0, steps + 1)
    known = {"step": step, "tokens_seen": step * 2048, "seconds": (step - 1) * 0.5}
    return Series(columns=dict.fromkeys(number_names(), np.full(steps, np.nan)) | known | columns)


def chart_of(*lines: RunLine, **options) -> CurvesChart:
    return draw(lines, CurveOptions(**options), LIGHT, COLOURS)


def curves(chart: CurvesChart, axis: str = "y") -> list[Any]:
    """Return the traces of a panel, without legend entries."""
    return [trace for trace in chart.figure.data if not trace.showlegend and (trace.yaxis or "y") == axis]


def legend(chart: CurvesChart) -> dict[str, Any]:
    return {trace.name: trace.line for trace in chart.figure.data if trace.showlegend}


def values(numbers: Any) -> list[float | None]:
    return [None if math.isnan(number) else float(number) for number in numbers]


def test_each_measured_column_has_a_panel_and_all_share_one_x_axis_and_hover_label() -> None:
    chart = chart_of(RunLine(name="a", series=series(100, loss=np.linspace(5, 1, 100), grad_norm=np.ones(100))))
    assert chart.titles == ("Loss (nats per supervised token)", "Gradient norm (before clipping)")
    assert [trace.yaxis for trace in chart.figure.data if not trace.showlegend] == ["y", "y2"]
    layout = chart.figure.layout
    assert (layout.hovermode, layout.hoversubplots) == ("x unified", "axis")
    assert layout.yaxis2.domain[1] < layout.yaxis.domain[0]
    assert chart.remark == ""


def test_smoothing_keeps_the_measured_curve_and_leaves_the_learning_rate_alone() -> None:
    read = series(100, loss=np.linspace(5, 1, 100), learning_rate=np.ones(100))
    chart = chart_of(RunLine(name="a", series=read), smoothing=0.9)
    assert [trace.opacity for trace in curves(chart)] == [0.35, 1]
    assert [trace.opacity for trace in curves(chart, "y2")] == [1]


@pytest.mark.parametrize(("runs", "rows"), [(1, 1_000_000), (10, 5_000), (20, 20_000)])
def test_a_page_of_curves_is_small(runs: int, rows: int) -> None:
    names = ("loss", "learning_rate", "grad_norm", "tokens_per_second", "device_memory_bytes")
    noise = np.random.default_rng(0).normal(size=rows)
    lines = [RunLine(name=f"run {index}", series=series(rows, **dict.fromkeys(names, noise))) for index in range(runs)]
    assert len(chart_of(*lines, smoothing=0.9).figure.to_json()) < 350_000


@pytest.mark.parametrize(
    ("x", "unit", "last"),
    [("step", "steps", 600), ("tokens_seen", "million tokens", 1.2288), ("seconds", "minutes", 4.99)],
)
def test_the_x_axis_has_a_fitting_unit(x: str, unit: str, last: float) -> None:
    chart = chart_of(RunLine(name="a", series=series(600, loss=np.ones(600))), x=x)
    assert chart.figure.layout.xaxis.title.text == unit
    assert curves(chart)[0].x[-1] == pytest.approx(last, rel=1e-3)


def test_a_logarithmic_axis_leaves_out_values_that_are_not_positive() -> None:
    read = series(3, loss=np.array([1.0, 0.0, -1.0]), grad_norm=np.ones(3))
    chart = chart_of(RunLine(name="a", series=read), loss="log")
    assert (chart.figure.layout.yaxis.type, chart.figure.layout.yaxis2.type) == ("log", "linear")
    assert values(curves(chart)[0].y) == [1, None, None]
    chart = chart_of(RunLine(name="a", series=read), x="seconds", log_x=True)
    assert chart.figure.layout.xaxis.type == "log"
    assert values(curves(chart)[0].x) == [None, 0.5, 1]


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ((6.8, 0.1), "log"),
        ((5.0, 0.1), "linear"),
        ((5.1, 0.1), "log"),
        ((6.8, 0.0, 0.1), "linear"),
        ((6.8,), "linear"),
    ],
)
def test_the_loss_axis_is_logarithmic_if_a_loss_falls_fiftyfold(losses: tuple[float, ...], scale: str) -> None:
    line = RunLine(name="a", series=series(len(losses), loss=np.array(losses)))
    assert chart_of(line).figure.layout.yaxis.type == scale
    assert chart_of(line, loss="linear").figure.layout.yaxis.type == "linear"


def test_a_contradictory_run_is_grey_and_does_not_decide_the_axis() -> None:
    doubtful = RunLine(name="forged", series=series(2, loss=np.array([2.0, 1e-6])), is_doubtful=True)
    chart = chart_of(RunLine(name="a", series=series(2, loss=np.array([2.0, 1.0]))), doubtful)
    assert chart.figure.layout.yaxis.type == "linear"
    assert (legend(chart)["forged"].dash, legend(chart)["forged"].color) == (DOUBTFUL_DASH, LIGHT.quiet)


def test_values_that_cannot_be_drawn_are_gaps_and_counted() -> None:
    read = series(3, loss=np.array([1.0, 1e300, -3.0]), tokens_seen=np.array([1, 2, 1e99]))
    chart = chart_of(RunLine(name="a", series=read))
    assert values(curves(chart)[0].y) == [1, None, -3]
    assert chart.remark == "1 point is outside the axis range."
    read = series(3, loss=np.ones(3), tokens_seen=np.array([1, 1e99, 1e99]))
    chart = chart_of(RunLine(name="a", series=read), x="tokens_seen")
    assert np.isfinite([x for x in curves(chart)[0].x if not np.isnan(x)]).all()


def test_clipping_leaves_out_outliers_and_counts_them() -> None:
    loss = np.linspace(1, 2, 1000)
    loss[[3, 500]] = [80, 90]
    chart = chart_of(RunLine(name="a", series=series(1000, loss=loss, learning_rate=loss)), clip=True)
    assert chart.figure.layout.yaxis.range == pytest.approx((0.96, 2.04), abs=0.01)
    assert chart.figure.layout.yaxis2.range is None
    assert chart.remark == "2 points are outside the axis range."


def test_zooming_draws_the_rows_between_with_a_neighbour_on_each_side() -> None:
    read = series(100, loss=np.linspace(100, 1, 100))
    chart = chart_of(RunLine(name="a", series=read), zoom=(20.0, 30.0))
    (curve,) = curves(chart)
    assert (curve.x[0], curve.x[-1]) == (19, 31)
    assert chart.figure.layout.xaxis.range == pytest.approx((19.9, 30.1))
    assert chart_of(RunLine(name="a", series=read), zoom=(200.0, 300.0)).titles


def test_losses_of_evaluations_are_dotted_points() -> None:
    losses, evaluated = series(100, loss=np.linspace(5, 1, 100)), series(2, loss=np.array([4.5, 2.5]))
    evaluated.columns["step"] *= 50
    line = RunLine(name="a", series=losses, evaluation=evaluated, is_foreign=True)
    chart = chart_of(line, smoothing=0.9)
    assert chart.titles == ("Loss, as stated; dotted: at evaluations",)
    assert (curves(chart)[-1].mode, curves(chart)[-1].line.dash) == ("lines+markers", "dot")
    assert (values(curves(chart)[-1].x), values(curves(chart)[-1].y)) == ([50, 100], [4.5, 2.5])
    assert [row.rstrip(",") for row in curves_csv([line]).splitlines()[-2:]] == [
        "a,at evaluations,50,2048,0.0,4.5",
        "a,at evaluations,100,4096,0.5,2.5",
    ]


def test_more_runs_than_colours_differ_in_their_dashes() -> None:
    lines = [RunLine(name=f"run {number}", series=series(10, loss=np.ones(10))) for number in range(6)]
    found = [(line.color, line.dash) for line in legend(chart_of(*lines)).values()]
    assert found == [(colour, dash) for dash in DASHES for colour in COLOURS]


@pytest.mark.parametrize("name", ["<i>", '<a href="javascript:alert(1)">x</a>'])
def test_names_are_escaped_wherever_plotly_reads_html(name: str) -> None:
    mark = Mark(at={"step": 1, "tokens_seen": 1, "seconds": 1}, text=name)
    line = RunLine(name=name, series=series(5, loss=np.ones(5)), resumed=(mark,))
    other = RunLine(name=f"{name} 2", series=series(5, loss=np.ones(5)))
    for chart in (chart_of(line), chart_of(line, other)):
        assert name not in chart.figure.to_json().encode().decode("unicode_escape")


def test_the_loss_of_another_objective_is_not_called_one_of_supervised_tokens() -> None:
    plain, rewarded = series(3, loss=np.ones(3)), series(3, loss=np.ones(3), reward_mean=np.ones(3))
    titles = [chart_of(RunLine(name="a", series=own)).titles[0] for own in (plain, rewarded)]
    assert titles == ["Loss (nats per supervised token)", "Loss (nats)"]
    foreign = RunLine(name="b", series=plain, is_foreign=True)
    assert chart_of(RunLine(name="a", series=plain), foreign).titles == ("Loss, as stated",)


def test_the_csv_has_every_row_and_digit_and_no_formula() -> None:
    read = series(3, loss=np.array([1.0, np.nan, 2.0000000001]), device_memory_bytes=np.full(3, 16911433728.0))
    header, *rows = curves_csv([RunLine(name="=1+1", series=read)]).splitlines()
    assert header.startswith("run,part,step,tokens_seen,seconds,loss,reward_mean,learning_rate")
    assert {row.count(",") for row in rows} == {header.count(",")}
    assert [row.split(",")[:6] for row in rows] == [
        ["'=1+1", "", "1", "2048", "0.0", "1.0"],
        ["'=1+1", "", "2", "4096", "0.5", ""],
        ["'=1+1", "", "3", "6144", "1.0", "2.0000000001"],
    ]
    assert all(",16911433728," in row for row in rows)


@pytest.mark.parametrize("size", [4001, 10_007, 1_000_000])
def test_thinning_keeps_spikes_of_one_step(size: int) -> None:
    noise = np.random.default_rng(0).normal(size=size)
    spikes = [7, size // 3, size - 9]
    noise[spikes] = [50, -50, 50]
    indices = thin(noise)
    assert set(spikes) <= set(indices.tolist())
    assert len(indices) <= POINTS + 2
    assert np.all(np.diff(indices) > 0)
    assert (indices[0], indices[-1]) == (0, size - 1)


def test_thinning_keeps_gaps_and_short_series() -> None:
    gap = np.full(100, np.nan)
    gap[60] = 1.0
    indices = thin(gap, 10)
    assert 60 in indices
    assert np.isnan(gap[indices]).sum() >= 4
    assert thin(np.arange(5), 10).tolist() == [0, 1, 2, 3, 4]
    assert thin(np.array([]), 10).tolist() == []


@pytest.mark.parametrize("weight", [0.0, 0.01, 0.6, 0.99])
def test_smoothing_equals_its_sum(weight: float) -> None:
    noise = np.random.default_rng(2).normal(size=3000)
    weights = weight ** np.abs(np.arange(3000)[:, None] - np.arange(3000)[None, :])
    np.testing.assert_allclose(smooth(noise, weight), weights @ noise / weights.sum(axis=1), rtol=1e-9, atol=1e-12)


def test_smoothing_skips_values_that_are_not_finite() -> None:
    result = smooth(np.array([1.0, np.nan, 1.0, 1.0]), 0.9)
    np.testing.assert_allclose(result, [1.0, np.nan, 1.0, 1.0])
    assert smooth(np.array([]), 0.9).tolist() == []


def rows_of(first: int, last: int) -> Series:
    """Return rows of these steps, one a second, 100 tokens each, the step as their loss."""
    steps = np.arange(float(first), last + 1)
    return series(len(steps), step=steps, tokens_seen=steps * 100, loss=steps, seconds=steps - first)


def child_of(parent: str, step: int) -> dict[str, Any]:
    return {"parent": {"run_id": parent, "step": step}}


def test_parents_end_where_they_were_resumed_and_time_goes_on() -> None:
    runs = {
        "first": RecordedRun({"parent": None}, rows_of(1, 10)),
        "second": RecordedRun(child_of("first", 6), rows_of(7, 12)),
        "empty": RecordedRun(child_of("second", 10), rows_of(1, 0)),
    }
    for parent in ("second", "empty"):
        line, _ = line_with_parents("third", RecordedRun(child_of(parent, 10), rows_of(11, 14)), runs.get)
        assert line.earlier is not None
        assert line.earlier.columns["step"].tolist() == [*range(1, 11)]
        assert line.earlier.columns["seconds"].tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8]
        assert line.series.columns["seconds"].tolist() == [8, 9, 10, 11]
        assert [mark.text for mark in line.resumed] == ["resumed after step 6", "resumed after step 10"]


def test_a_missing_parent_is_named_and_a_circle_ends() -> None:
    line, missing = line_with_parents("a", RecordedRun(child_of("gone", 10), rows_of(11, 14)), lambda name: None)
    assert (missing, line.earlier, len(line.resumed)) == ("gone", None, 1)
    runs = {name: RecordedRun(child_of(other, 3), rows_of(1, 4)) for name, other in ("ab", "ba")}
    line, _ = line_with_parents("c", RecordedRun(child_of("a", 3), rows_of(4, 6)), runs.get)
    assert line.earlier is not None
    assert line.earlier.rows == 6


CASES = Path(__file__).parents[3] / "cases" / "foreign"


def points(series: Series | None) -> list[tuple[float, float]]:
    return list(zip(*(series.columns[key].tolist() for key in ("step", "loss")), strict=True)) if series else []


def test_the_curve_of_another_tool_says_where_it_stands() -> None:
    line, origin = build_line("a", read_tool_folder(CASES / "hf_trainer" / "folder"))
    assert line.series.columns["step"].tolist() == sorted(line.series.columns["step"])
    assert line.series.has("loss")
    assert origin.startswith("Read from trainer_state.json, lines ")


LOSSES = [{"loss": 2.5, "step": 50}, {"loss": 1.9, "step": 100}]
EVALUATED = [{"eval_loss": 1.8, "step": 100}, {"eval_loss": 2.2, "step": 50}]
AGAIN = [{"eval_loss": 7.0, "step": 50}, {"eval_loss": 1.7}]
WITHOUT_STEPS = [{"loss": 2.5, "epoch": 0.5}, {"loss": 1.9, "epoch": 1.0}]


@pytest.mark.parametrize(
    ("history", "rows", "evaluations"),
    [
        (LOSSES + EVALUATED + AGAIN, 2, [(50, 2.2), (100, 1.8)]),
        (EVALUATED, 0, [(50, 2.2), (100, 1.8)]),
        (WITHOUT_STEPS + EVALUATED[:1], 2, []),
    ],
    ids=["in the order of their steps and once for each", "alone", "no place among losses without steps"],
)
def test_losses_of_evaluations(tmp_path: Path, history: list[dict], rows: int, evaluations: list[tuple]) -> None:
    state = {"global_step": 100, "max_steps": 100, "log_history": history}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    line, origin = build_line("a", read_tool_folder(tmp_path))
    assert (line.series.rows, points(line.evaluation)) == (rows, evaluations)
    assert origin.startswith("Read from trainer_state.json")


def test_an_evaluation_of_another_file_or_stage_is_not_drawn_on_a_curve() -> None:
    def row(file: str, stage: int, **values: float) -> MetricRow:
        return MetricRow(values=dict(values), source=Citation(file=file, line=1), stage=stage)

    metrics = [row("a.log", 2, step=2, eval_loss=8.0)]
    metrics += [row("b.log", 1, step=1, loss=2.0), row("b.log", 1, step=1, eval_loss=9.0)]
    metrics += [row("b.log", 2, step=step, loss=1.0) for step in (1, 2, 3)]
    metrics += [row("b.log", 2, step=3, eval_loss=1.5)]
    view = ImportedRun(path=Path("folder"), files={"both": FileReading(metrics=tuple(metrics))})
    line, _ = build_line("a", view)
    assert points(line.evaluation) == [(3, 1.5)]


@pytest.mark.parametrize("folder", sorted(CASES.iterdir()), ids=lambda folder: folder.name)
def test_every_case_draws_something_or_nothing_and_never_fails(folder: Path) -> None:
    view = read_tool_folder(folder / "folder")
    line, _ = build_line("a", view)
    for _, series in line.parts():
        assert len({len(column) for column in series.columns.values()}) == 1
    assert len(foreign_run.figures(view)) == 7
    assert len(foreign_run.file_rows(view)) == len(view.files)
    assert len(foreign_run.prediction_rows(view)) == len(view.predictions)
