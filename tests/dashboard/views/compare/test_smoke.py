"""Smoke → TPU: the tab of the Compare page, the card on the run page and the button on the Runs page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from pages import Open, labels, press, said
from synthetic import write_run

from dashboard.shared import state
from dashboard.shared.parts.progress import START, TAB
from dashboard.views.compare import smoke
from evidence.compare.smoke import FigureValue, SmokeFigure
from launch import queue
from launch.jobs import jobs

REPOSITORY = Path(__file__).parents[4]


def test_the_pair_is_shown_with_stages_figures_and_limits(opened: Open, root: Path) -> None:
    write_run(root, "long", steps=200)
    write_run(root, "short", steps=2, mode="smoke")
    write_run(root, "other", steps=2, mode="smoke", seed=1, config={"optimizer": {"learning_rate": 0.5}})
    app = opened(state.COMPARE, part=TAB)
    text = said(app)
    assert "The smoke run passed 6 of 8 stages of long; save and resume were not tested" in text
    assert "Same configuration: model, batch and data are the same, only the length differs." in text
    assert "2 steps say nothing about 200" in text
    assert [box.value for box in app.selectbox] == ["long", "short"]
    stages, figures = (table.value for table in app.dataframe)
    assert stages["Stage"].tolist() == ["load", "compile", "first step", "steps", "save", "resume", "evaluate", "seal"]
    assert [state for (state,) in stages["Smoke run"]].count("– not tested") == 2
    assert list(dict.fromkeys(figures["Group"])) == ["Must agree", "Should scale", "May differ"]
    assert not app.get("plotly_chart")
    app.selectbox[1].set_value("other")
    assert "more differs than model, batch, data and length" in said(app.run())
    assert app.query_params["full"] in ("long", ["long"])
    assert app.query_params["smoke"] in ("other", ["other"])


def test_the_committed_demo_runs_have_the_same_model_batch_and_data(opened: Open, root: Path) -> None:
    for name in ("demo-smoke", "demo-full"):
        shutil.copytree(REPOSITORY / "submission_runs" / name, root / name)
    app = opened(state.COMPARE, part=TAB, runs=["demo-full"])
    text = said(app)
    assert "Same configuration: model, batch and data are the same, only the length differs." in text
    assert text.count(">✓ same<") == 10
    assert "name demo, parameters 1,123,456" in text
    assert app.dataframe[1].value.set_index("Figure").loc["Parameters", "Difference"] == "✓ equal"


@pytest.mark.parametrize(
    ("band", "expected", "full", "more", "difference"),
    [
        ("must agree", 5.0, 5.0, {"agrees": True}, "✓ equal"),
        ("must agree", 5.0, 6.0, {"agrees": False}, "≠ different"),
        ("must agree", None, 6.0, {"remark": "other rows"}, "– other rows"),
        ("should scale", 10.0, 12.0, {}, "+20 %"),
        ("should scale", 10.0, None, {}, "–"),
        ("should scale", None, 12.0, {"remark": "different model"}, "– different model"),
        ("may differ", None, 0.9, {}, "–"),
    ],
)
def test_differences_from_the_prediction(band, expected, full, more, difference) -> None:
    prediction = None if expected is None else FigureValue(number=expected, text=str(expected))
    values = {"smoke": FigureValue(number=1.0, text="1"), "full": FigureValue(number=full, text=str(full))}
    figure = SmokeFigure(name="x", band=band, expected=prediction, **values, **more)
    assert smoke.describe_difference(figure) == difference


def test_a_full_run_without_a_smoke_run_can_start_one(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert "The smoke run passed 6 of 8 stages of long" in said(app)
        assert START not in labels(app)
    app = press(app, TAB)
    assert (app.query_params["full"], app.query_params["smoke"]) == ("long", "short")
    assert [box.value for box in app.selectbox] == ["long", "short"]
