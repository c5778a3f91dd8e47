"""Smoke → TPU: the tab of Compare, and the card on both runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pages import Open, labels, press, said
from synthetic import write_run

from dashboard.shared.config import configs
from dashboard.shared.parts.rehearsed import MAKE, TAB
from dashboard.shared.session import state
from launch import queue
from launch.jobs import jobs


def test_a_pair_by_lineage_is_shown_with_stages_figures_and_what_is_open(opened: Open, root: Path) -> None:
    write_run(root, "long", steps=200)
    write_run(root, "rehearsal", steps=2, mode="smoke")
    write_run(root, "other", steps=2, mode="smoke", seed=1, config={"optimizer": {"learning_rate": 0.5}})
    app = opened(state.COMPARE, part=TAB)
    text = said(app)
    assert "The smoke run rehearsed 6 of 8 stages of long" in text
    assert "Both are of one configuration" in text
    assert text.split('<ol class="tp-stages"')[1].split("</ol>")[0].count("<li>") == 8
    assert "2 steps say nothing about 200" in text
    assert [box.value for box in app.selectbox] == ["long", "rehearsal"]
    assert len(app.get("plotly_chart")) == 1
    app.selectbox[1].set_value("other")
    assert "Their configurations differ in more than size" in said(app.run())
    assert app.query_params["smoke"] in ("other", ["other"])


def test_without_a_rehearsal_a_button_makes_the_smoke_run_of_that_configuration(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "start_worker", lambda root: None)
    write_run(root, "long", steps=200)
    write_run(root, "another", steps=2, mode="smoke", config={"optimizer": {"learning_rate": 0.5}})
    app = opened(state.COMPARE, part=TAB)
    assert "No smoke run rehearsed long" in said(app)
    press(app, MAKE)
    (job,) = jobs(root)
    config = yaml.safe_load((job.folder / "config.yaml").read_text("utf-8"))
    assert (config["mode"], config["limits"]["steps"], config["optimizer"]["learning_rate"]) == ("smoke", 2, 0.001)


def test_both_runs_have_a_card_that_leads_to_the_pair(opened: Open, root: Path) -> None:
    write_run(root, "long", steps=200)
    assert MAKE in labels(opened(state.RUN, run="long"))
    write_run(root, "rehearsal", steps=2, mode="smoke")
    for name in ("long", "rehearsal"):
        app = opened(state.RUN, run=name)
        assert "The smoke run rehearsed 6 of 8 stages of long" in said(app)
        assert MAKE not in labels(app)
    app = press(app, TAB)
    assert (app.query_params["full"], app.query_params["smoke"]) == ("long", "rehearsal")
    assert [box.value for box in app.selectbox] == ["long", "rehearsal"]


def test_a_root_without_a_full_run_says_so(opened: Open, root: Path) -> None:
    write_run(root, "one", steps=2, mode="smoke")
    write_run(root, "two", steps=2, mode="smoke", seed=1)
    assert "No full run yet" in said(opened(state.COMPARE, part=TAB))


def test_the_smoke_run_of_a_configuration_is_of_its_own_model() -> None:
    smoke = configs.smoke_of({"name": "gemma", "model": {"name": "google/gemma-2b"}, "limits": {"steps": 500}})
    assert (smoke["name"], smoke["mode"], smoke["limits"]["steps"]) == ("gemma-smoke", "smoke", 2)
    assert smoke["model"]["name"] == "google/gemma-2b"
    assert smoke["recording"]["log_every_steps"] == 1
    assert configs.smoke_of(smoke)["name"] == "gemma-smoke"
