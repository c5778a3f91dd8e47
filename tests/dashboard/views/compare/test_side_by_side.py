"""Runs side by side: the box of runs, verdicts, curves, figures, settings, flipped items and their CSV."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from pages import Open, said
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import reading, state
from dashboard.shared.parts import run_box
from dashboard.shared.state import COMPARE, PACKAGE
from dashboard.shared.words import csv_text
from dashboard.views.compare import side_by_side
from evidence.compare.scores import Comparison, PairVerdict, compare_runs, judge_pairs
from evidence.layout import MANIFEST
from evidence.run import read_run

FOREIGN = Path(__file__).parents[3] / "cases" / "foreign"
REPOSITORY = Path(__file__).parents[4]


def compare(*folders: Path) -> Comparison:
    return compare_runs([read_run(folder) for folder in folders])


def forge(folder: Path) -> None:
    """Change a figure of the manifest, so that the run contradicts itself."""
    manifest = folder / MANIFEST
    document = json.loads(manifest.read_text("utf-8"))
    document["result"]["last_loss"] += 1.0
    manifest.write_text(json.dumps(document), "utf-8")


def frames(app: AppTest) -> dict[str, pd.DataFrame]:
    """Return the tables of the page by the first words of their alternative texts."""
    return {" ".join(table.proto.alt.split()[:3]): table.value for table in app.dataframe}


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


@pytest.fixture
def verdicts(tmp_path: Path) -> tuple[PairVerdict, ...]:
    correct = {"first": 0.5, "better": 1.0, "worse": 0.0, "unevaluated": 0.0}
    return judge_pairs(
        compare(
            *(
                write_run(tmp_path, name, correct=share, items=0 if name == "unevaluated" else 60)
                for name, share in correct.items()
            )
        )
    )


def test_the_figure_has_each_difference_with_its_interval_and_what_is_too_small_to_detect(
    verdicts: tuple[PairVerdict, ...],
) -> None:
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
    assert (
        side_by_side.describe_costs(verdict)
        == "same loss · same time · memory 512.0 MiB → 1.00 GiB, whole process (+100 %)"
    )
    assert side_by_side.percent_change(2.0, 1.5) == "−25 %"
    assert side_by_side.percent_change(0.2, 128.0) == "×640"


def test_losses_of_different_objectives_and_scores_of_different_items_are_refused_with_the_reason() -> None:
    runs = REPOSITORY / "submission_runs"
    compared = compare(runs / "countdown-grpo", runs / "demo-full")
    (verdict,) = judge_pairs(compared)
    assert side_by_side.describe_costs(verdict).startswith(
        "loss – (objectives grpo and supervised are not comparable) · time "
    )
    score = side_by_side.describe_score(verdict)
    assert score.startswith("– Only countdown-grpo was evaluated on 300 items (")
    assert score.endswith("more reasons.")
    assert side_by_side.figures_frame(compared).loc["pass@4", "demo-full"] == "–"


def test_twenty_runs_have_statistics_and_are_not_read_again_at_each_click(
    opened: Open, sweep: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    app = next(button for button in app.button if button.label == "Choose others").click().run()
    assert not app.exception
    assert app.multiselect[0].value == []


def test_every_table_can_be_downloaded_as_csv_without_formulas(opened: Open, root: Path, sweep: list[str]) -> None:
    def offered(**address: str | list[str]) -> list[str]:
        return [button.proto.label for button in opened(state.COMPARE, **address).get("download_button")]

    assert offered(runs=sweep[:3])[:4] == ["Figures", "Settings", "Differences in score", "Flipped items"]
    assert "Figures" not in offered(runs=sweep[:3], part="Scatter")
    frame = side_by_side.settings_frame(compare(*(root / name for name in sweep[:3]))).reset_index()
    head, *rows = csv.reader(io.StringIO(csv_text(frame)))
    assert head == list(frame.columns) == ["Kind", "Setting", *sweep[:3]]
    assert rows == frame.values.tolist()
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
    forge(write_run(root, "beta", seed=2))
    text = said(opened(state.COMPARE, runs=["alpha", "beta"]))
    assert "beta: last_loss is not shown, because run_manifest.json contradicts the rows." in text
    assert "alpha: " not in text
    assert text.count("≠</span>contradictory") == 2
    page = said(opened(state.RUN, run="beta"))
    assert "last_loss is not shown, because run_manifest.json contradicts the rows." in page


def test_a_run_with_a_truncated_manifest_is_named_and_its_score_not_compared(opened: Open, root: Path) -> None:
    write_run(root, "whole")
    manifest = write_run(root, "cut", seed=2) / MANIFEST
    manifest.write_text(manifest.read_text("utf-8")[:500], "utf-8")
    app = opened(state.COMPARE, runs=["whole", "cut"])
    text = said(app)
    assert "run_manifest.json: This is not JSON: it ends in the middle" in text
    assert "cut lacks a valid run_manifest.json" in text
    assert [chart.key for chart in app.get("plotly_chart")] == ["compare_curves"]
    assert "Items that flipped" not in [header.value for header in app.header]


def test_both_outputs_to_the_selected_item_are_shown_whole_and_broken_items_come_first(
    opened: Open, root: Path
) -> None:
    folders = [write_run(root, name, items=30, correct=0.5, seed=seed) for seed, name in enumerate(("one", "other"))]
    score = compare(*folders).pairs[0].score
    assert score is not None
    app = opened(state.COMPARE, runs=["one", "other"])
    table = frames(app)["Items that only"]
    assert table["Item"].tolist() == [flip.id for flip in score.flips]
    assert [change[2:] for change in table["Change"]] == [flip.kind for flip in score.flips]
    assert score.flips[0].kind == "broken"
    rows = [{row["id"]: row for row in read_run(folder).rows("predictions.jsonl").values} for folder in folders]
    for place in (0, len(score.flips) - 1):
        if place:
            app.session_state["flips of one and other"] = {"selection": {"rows": [place], "columns": [], "cells": []}}
            app.run()
        item = score.flips[place].id
        assert [block.value for block in app.code] == [
            rows[0][item]["prompt"], rows[0][item]["output_text"], rows[1][item]["output_text"],
        ]  # fmt: skip


@pytest.fixture
def many(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_box, "LISTED", 3)
    monkeypatch.setattr(run_box, "OFFERED", 2)
    for number in range(4):
        write_run(root, f"run-{number}", seed=number)


def test_a_link_to_some_runs_says_which_are_gone(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    write_run(root, "beta", seed=1)
    app = opened(COMPARE, runs=["beta", "gone", "alpha"])
    assert f"There is no run gone in {root}." in said(app)
    assert app.multiselect[0].value == ["beta", "alpha"]


@pytest.mark.usefixtures("many")
def test_of_many_runs_the_newest_are_listed_and_a_link_names_any(opened: Open) -> None:
    names = ["run-0", "run-1", "run-2", "run-3"]
    app = opened(PACKAGE, runs=names)
    box = app.multiselect[0]
    assert len(box.options) == 2
    assert box.placeholder == "the newest 2 are listed; type the whole name of another"
    assert box.value == names
    assert "There is no run" not in said(app)


@pytest.mark.usefixtures("many")
def test_a_name_that_no_run_has_is_said_and_left_out(opened: Open, root: Path) -> None:
    app = opened(COMPARE, runs=["run-0", "../run-1", "run-3"])
    assert f"There is no run ../run-1 in {root}." in said(app)
    assert "run-0" in said(app)
    assert not app.exception
