"""The Compare page: runs side by side, the scatter plot, and Smoke → TPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from mutations import apply
from pages import Open, figure, labels, press, said, select
from streamlit.testing.v1 import AppTest
from synthetic import read_rows, write_run

from dashboard.shared import reading, state
from dashboard.shared.parts import run_box
from dashboard.shared.parts.progress import START, TAB
from dashboard.shared.words import csv_text
from dashboard.views.compare import scatter, side_by_side
from evidence.compare.scores import Comparison, compare_runs, judge_pairs
from evidence.grade import GradeName
from evidence.index.summary import RunSummary
from evidence.layout import MANIFEST, PREDICTIONS
from evidence.run import read_run
from launch import queue
from launch.jobs import jobs

FOREIGN = Path(__file__).parents[2] / "cases" / "foreign"
SUBMITTED = Path(__file__).parents[3] / "submission_runs"


def compare(*folders: Path) -> Comparison:
    return compare_runs([read_run(folder) for folder in folders])


def frames(app: AppTest) -> dict[str, pd.DataFrame]:
    """Return the tables of the page by the first words of their alternative texts."""
    return {" ".join(table.proto.alt.split()[:3]): table.value for table in app.dataframe}


@pytest.fixture
def sweep(root: Path) -> list[str]:
    names = [f"run-{number:02}" for number in range(23)]
    for number, name in enumerate(names):
        decay = 0.001 * (1 + number)
        write_run(root, name, steps=4, items=6, seed=number, config={"optimizer": {"weight_decay": decay}})
    return names


def test_the_verdict_comes_first_then_curves_then_tables(opened: Open, root: Path) -> None:
    # All 40 right against none: p is 2^-39, all are fixed, and the lower end is 40/42 - z sqrt(42 - 1600/42) / 42.
    write_run(root, "before", items=40, correct=0.0, config={"optimizer": {"weight_decay": 0.0}})
    write_run(root, "after", items=40, correct=1.0, config={"optimizer": {"weight_decay": 0.2}})
    app = opened(state.COMPARE, runs=["before", "after"])
    text = said(app)
    assert "▲</span>better" in text
    assert "+100.0 points (95 % interval +86.0 to +100.0), exact McNemar, p &lt; 0.001. Of 40 items, 40 were" in text
    assert '<span class="tp-chip">weight_decay 0.0 → 0.2</span>' in text
    figure, _ = app.get("plotly_chart")
    assert "after +100.0 points (95 % interval +86.0 to +100.0)" in figure.proto.alt
    assert [header.value for header in app.header] == ["Curves", "Figures and settings", "Items that flipped"]
    tables = frames(app)
    assert "optimizer steps" not in tables["Figures of the"].index
    assert tables["Figures of the"].loc["exact match"].tolist() == [
        "0.0 % (0.0–8.8 %), n = 40", "100.0 % (91.2–100.0 %), n = 40",
    ]  # fmt: skip
    assert ("changed", "optimizer.weight_decay") in tables["Settings of the"].index
    app.toggle(key="equal").set_value(True).run()
    assert "optimizer steps" in frames(app)["Figures of the"].index
    assert ("equal", "optimizer.name") in frames(app)["Settings of the"].index


def test_the_figure_has_each_difference_with_its_interval_and_what_is_too_small_to_detect(tmp_path: Path) -> None:
    shares = {"first": 0.5, "better": 1.0, "worse": 0.0}
    runs = [write_run(tmp_path, name, correct=share, items=60) for name, share in shares.items()]
    verdicts = judge_pairs(compare(*runs, write_run(tmp_path, "unevaluated", items=0)))
    frame = side_by_side.verdicts_frame(verdicts, ["better"]).replace("worse", "<b>worse", regex=False)
    figure = side_by_side.difference_figure(frame.assign(Verdict=["better", "worse"]), "<i>first")
    scores = [verdict.pair.score for verdict in verdicts if verdict.pair.score]
    bands = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [point.name for point in figure.data] == ["better", "worse"]
    # The first run is at the top, and shapes count rows from below.
    for point, band, score in zip(figure.data, reversed(bands), scores, strict=True):
        assert point.x[0] == pytest.approx(100 * score.difference)
        assert point.x[0] + point.error_x.array[0] == pytest.approx(100 * score.high)
        assert point.x[0] - point.error_x.arrayminus[0] == pytest.approx(100 * score.low)
        assert -band.x0 == band.x1 == pytest.approx(100 * (score.detectable_difference or 0))
    assert figure.layout.yaxis.categoryarray == ("&lt;b&gt;worse", "better (contradictory)")
    assert figure.layout.xaxis.title.text == "Difference from &lt;i&gt;first (percentage points)"
    assert len({point.marker.symbol for point in figure.data}) == 2


def test_costs_are_shown_with_their_change(tmp_path: Path) -> None:
    slow = {"result": {"peak_memory_bytes": 2**30}}
    (verdict,) = judge_pairs(compare(write_run(tmp_path, "a"), write_run(tmp_path, "b", manifest=slow)))
    memory = "memory 512.0 MiB → 1.00 GiB, whole process (+100 %)"
    assert side_by_side.describe_costs(verdict) == f"same loss · same time · {memory}"
    assert side_by_side.percent_change(2.0, 1.5) == "−25 %"
    assert side_by_side.percent_change(0.2, 128.0) == "×640"


def test_losses_of_different_objectives_and_scores_of_different_items_are_refused_with_the_reason() -> None:
    compared = compare(SUBMITTED / "countdown-grpo", SUBMITTED / "demo-full")
    (verdict,) = judge_pairs(compared)
    refused = "loss – (objectives grpo and supervised are not comparable) · time "
    assert side_by_side.describe_costs(verdict).startswith(refused)
    score = side_by_side.describe_score(verdict)
    assert score.startswith("– Only countdown-grpo was evaluated on 300 items (")
    assert score.endswith("more reasons.")
    assert side_by_side.figures_frame(compared).loc["pass@4", "demo-full"] == "–"


def test_twenty_runs_are_read_once(opened: Open, sweep: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened(state.COMPARE, runs=sweep)
    text = said(app)
    assert text.count("exact McNemar, p") == 19
    assert "run-19" in text
    assert "run-20" not in text
    assert "23 runs. Side by side shows the first 20; Scatter shows all." in text
    again: list[Path] = []
    monkeypatch.setattr(reading, "read_run", lambda folder: again.append(folder) or read_run(folder))
    app.run()
    assert again == []
    assert press(app, "Choose others").multiselect[0].value == []


def test_every_table_can_be_downloaded_as_csv(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, runs=sweep[:3])
    offered = [button.proto.label for button in app.get("download_button")]
    assert offered[:4] == ["Figures", "Settings", "Differences in score", "Flipped items"]
    assert csv_text(pd.DataFrame({"a": ["=1+1"], "b": [float("nan")]})) == "a,b\n'=1+1,\n"


def test_runs_of_another_tool_are_shown_with_their_sources(opened: Open, root: Path) -> None:
    write_run(root, "ours", steps=4, items=6)
    shutil.copytree(FOREIGN / "per_checkpoint" / "folder", root / "theirs")
    app = opened(state.COMPARE, runs=["ours", "theirs"])
    text = said(app)
    assert "Imported from other tools: theirs. Their figures and scores are shown as the files state them" in text
    assert frames(app)["Figures of the"].loc["last loss", "theirs"] == "1.7000"
    assert "No setting differs." in text
    assert "theirs: Read from eval_results.json, lines 20 to 25." in text
    assert "theirs is imported from another tool and has not been scored." in text
    assert "eval_results.json at /checkpoints/0/accuracy (line 7)" in text


def test_a_contradictory_run_is_marked_and_its_wrong_figure_withheld(opened: Open, root: Path) -> None:
    write_run(root, "alpha", seed=1)
    apply(write_run(root, "beta", seed=2), {"file": MANIFEST, "pointer": "/result/last_loss", "value": 9.0})
    text = said(opened(state.COMPARE, runs=["alpha", "beta"]))
    assert "beta: last_loss is not shown, because run_manifest.json contradicts the rows." in text
    assert "alpha: " not in text
    assert text.count("≠</span>contradictory") == 2
    page = said(opened(state.RUN, run="beta"))
    assert "last_loss is not shown, because run_manifest.json contradicts the rows." in page


def test_flipped_items_are_shown_whole_and_broken_ones_come_first(opened: Open, root: Path) -> None:
    folders = [write_run(root, name, items=30, correct=0.5, seed=seed) for seed, name in enumerate(("one", "other"))]
    score = compare(*folders).pairs[0].score
    assert score is not None
    app = opened(state.COMPARE, runs=["one", "other"])
    table = frames(app)["Items that only"]
    assert table["Item"].tolist() == [flip.id for flip in score.flips]
    assert [change[2:] for change in table["Change"]] == [flip.kind for flip in score.flips]
    assert score.flips[0].kind == "broken"
    rows = [{row["id"]: row for row in read_rows(folder / PREDICTIONS)} for folder in folders]
    for place in (0, len(score.flips) - 1):
        one, other = (answers[score.flips[place].id] for answers in rows)
        select(app, "flips of one and other", place)
        assert [block.value for block in app.code] == [one["prompt"], one["output_text"], other["output_text"]]


def test_a_link_to_some_runs_says_which_are_gone(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    write_run(root, "beta", seed=1)
    app = opened(state.COMPARE, runs=["beta", "gone", "../alpha", "alpha"])
    assert f"There is no run gone, ../alpha in {root}." in said(app)
    assert app.multiselect[0].value == ["beta", "alpha"]


def test_of_many_runs_the_newest_are_listed(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_box, "LISTED", 3)
    monkeypatch.setattr(run_box, "OFFERED", 2)
    names = [write_run(root, f"run-{number}", seed=number).name for number in range(4)]
    app = opened(state.PACKAGE, runs=names)
    box = app.multiselect[0]
    assert len(box.options) == 2
    assert box.placeholder == "the newest 2 are listed; type the whole name of another"
    assert box.value == names
    assert "There is no run" not in said(app)


# Scatter


def run(name: str, *, grade: GradeName = "consistent", **more: Any) -> RunSummary:
    return RunSummary(path=Path(name), run_id=name, grade=grade, reasons=(), **more)


def axis(app: AppTest) -> str | None:
    return figure(app)["layout"]["xaxis"].get("type")


def test_any_number_of_runs_is_drawn_and_wide_axes_are_logarithmic(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, part="Scatter")
    assert [box.value for box in app.selectbox] == ["optimizer.weight_decay", "score", None]
    assert app.dataframe[0].value.shape == (23, 3)
    assert axis(app) == "log"
    assert axis(opened(state.COMPARE, part="Scatter", x_scale="linear")) is None
    app = opened(state.COMPARE, part="Scatter", runs=sweep[3:])
    assert (len(app.dataframe[0].value), axis(app)) == (20, None)


@pytest.mark.parametrize("given", [0, 3, 22])
def test_up_to_twenty_selected_runs_go_side_by_side(opened: Open, sweep: list[str], given: int) -> None:
    app = opened(state.COMPARE, part="Scatter", runs=sweep[:given])
    names = list(app.dataframe[0].value["run"])
    key = f"scatter_runs {hash(tuple(names))}"
    for too_few_or_many in ([0], list(range(21)) if given != 3 else []):
        assert "Side by side" not in labels(select(app, key, *too_few_or_many))
    text = said(press(select(app, key, 0, 1), "Side by side"))
    assert app.query_params["runs"] == names[:2]
    assert app.query_params.get("part", ["Side by side"]) == ["Side by side"]
    assert "exact McNemar, p" in text


RUNS = (
    run("a", settings={"optimizer.beta1": 0.9, "optimizer.name": "adamw", "seed": 1}, last_loss=1.5, score=0.5),
    run("b", settings={"optimizer.beta1": 0.8, "optimizer.name": "<i>", "seed": 2}, last_loss=0.0, score=0.7),
    run("c", settings={}, figures={"result.mean_loss": 2.0}),
    run("d", settings={"optimizer.beta1": 0.7, "seed": 3}, last_loss=1.0, score=0.9, grade="contradictory"),
)


def test_only_complete_sound_and_positive_runs_have_a_point() -> None:
    axes = ["optimizer.beta1", "loss"]
    frame = scatter.values_frame(RUNS, ["run", *axes])
    assert scatter.is_drawable(frame, RUNS, axes, set()).tolist() == [True, True, False, False]
    assert scatter.is_drawable(frame, RUNS, axes, {"loss"}).tolist() == [True, False, False, False]
    mixed = [run(str(number), settings={"x": value}) for number, value in enumerate((3, "auto", True))]
    assert scatter.values_frame(mixed, ["x"])["x"].tolist() == ["3", "auto", "true"]


def test_points_have_names_and_groups_and_no_markup_of_a_run() -> None:
    several = [run(f"<b>{n}", score=0.1 * n, settings={"x": n, "group": f"g{n % 2}<"}) for n in range(4)]
    frame = scatter.values_frame(several, ["run", "x", "score", "group"])
    figure = scatter.scatter_figure(frame.loc[[1, 2, 3]], "x", "score", "group", {"x"})
    assert figure.layout.xaxis.type == "log"
    assert [(trace.name, trace.marker.symbol, list(trace.hovertext)) for trace in figure.data] == [
        ("g0&lt;", "circle", ["&lt;b&gt;2"]), ("g1&lt;", "diamond", ["&lt;b&gt;1", "&lt;b&gt;3"]),
    ]  # fmt: skip
    odd = scatter.scatter_figure(frame.rename(columns={"x": "<b>x"}), "<b>x", "score", None, set())
    assert odd.layout.xaxis.title.text == "&lt;b&gt;x"


def test_many_numbers_make_a_colour_scale_and_many_words_share_a_group() -> None:
    several = [run(str(n), score=0.1, settings={"x": n, "word": f"w{n:02}"}) for n in range(15)]
    frame = scatter.values_frame(several, ["run", "x", "score", "word"])
    (points,) = scatter.scatter_figure(frame, "x", "score", "x", set()).data
    assert list(points.marker.color) == list(range(15))
    assert [trace.name for trace in scatter.scatter_figure(frame, "x", "score", "word", set()).data][-1] == "other"
    numbers = scatter.scatter_figure(frame[frame["x"] < 3], "score", "score", "x", set())
    assert [trace.name for trace in numbers.data] == ["0", "1", "2"]


def test_the_first_axes_are_a_number_that_was_varied_and_a_result() -> None:
    assert scatter.default_axes(RUNS[:2]) == ("optimizer.beta1", "score")
    assert scatter.default_axes([run("a"), run("b")]) == ("model", "score")


# Smoke → TPU


def test_the_pair_is_shown_with_stages_figures_and_limits(opened: Open, root: Path) -> None:
    write_run(root, "long", steps=200)
    write_run(root, "short", steps=2, mode="smoke")
    write_run(root, "other", steps=2, mode="smoke", seed=1, config={"optimizer": {"learning_rate": 0.5}})
    app = opened(state.COMPARE, part=TAB)
    text = said(app)
    assert "passed 6 of the 8 stages of long; save and resume were not tested" in text
    assert "Same configuration: model, batch and data are the same, only the number of steps differs." in text
    assert "2 steps say nothing about 200" in text
    assert [box.value for box in app.selectbox] == ["long", "short"]
    stages, figures = (table.value for table in app.dataframe)
    assert stages["Stage"].tolist() == ["load", "compile", "first step", "steps", "save", "resume", "evaluate", "seal"]
    assert [state for (state,) in stages["Smoke run"]].count("– not tested") == 2
    assert list(dict.fromkeys(figures["Group"])) == ["Must agree", "Should scale", "May differ"]
    differences = {"Must agree": {"✓ equal", "≠ different"}, "Should scale": {"+0 %"}, "May differ": {"–"}}
    assert figures.groupby("Group")["Difference"].agg(set).to_dict() == differences
    assert not app.get("plotly_chart")
    app.selectbox[1].set_value("other")
    assert "more differs than model, batch, data and length" in said(app.run())
    assert app.query_params["full"] in ("long", ["long"])
    assert app.query_params["smoke"] in ("other", ["other"])


def test_the_committed_demo_runs_have_the_same_model_batch_and_data(opened: Open, root: Path) -> None:
    for name in ("demo-smoke", "demo-full"):
        shutil.copytree(SUBMITTED / name, root / name)
    app = opened(state.COMPARE, part=TAB, runs=["demo-full"])
    text = said(app)
    assert "Same configuration: model, batch and data are the same, only the number of steps differs." in text
    assert text.count(">✓ same<") == 10
    assert "name demo, parameters 1,123,456" in text
    assert app.dataframe[1].value.set_index("Figure").loc["Parameters", "Difference"] == "✓ equal"


def test_a_missing_smoke_run_can_be_started(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "start_worker", lambda root: None)
    write_run(root, "long", steps=200)
    write_run(root, "another", steps=2, mode="smoke", config={"optimizer": {"learning_rate": 0.5}})
    app = opened(state.COMPARE, part=TAB)
    assert "No smoke run for long" in said(app)
    press(app, START)
    (job,) = jobs(root)
    config = yaml.safe_load((job.folder / "config.yaml").read_text("utf-8"))
    assert (config["mode"], config["limits"]["steps"], config["optimizer"]["learning_rate"]) == ("smoke", 2, 0.001)


def test_the_tab_is_one_click_from_both_runs(opened: Open, root: Path) -> None:
    write_run(root, "long", steps=200)
    assert START in labels(opened(state.RUN, run="long"))
    write_run(root, "short", steps=2, mode="smoke")
    for name in ("long", "short"):
        app = opened(state.RUN, run=name)
        assert "passed 6 of the 8 stages of long" in said(app)
        assert START not in labels(app)
    app = press(app, TAB)
    assert (app.query_params["full"], app.query_params["smoke"]) == ("long", "short")
    assert [box.value for box in app.selectbox] == ["long", "short"]
