"""Pages in their states, without a browser: empty, one run, broken, running, hostile, many."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import APP, Open, said
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import state
from evidence.lock import RunLock


@pytest.mark.parametrize("page", state.PAGES, ids=lambda page: page.title)
def test_every_page_of_an_empty_root_says_what_to_do(opened: Open, page: state.Page) -> None:
    app = opened(page)
    text = said(app)
    if page is state.LAUNCH:
        assert "Start from" in [widget.label for widget in app.selectbox]
    else:
        assert "tp-empty" in text


def test_the_empty_runs_page_offers_a_smoke_run(opened: Open) -> None:
    app = opened(state.RUNS)
    assert "No runs in" in said(app)
    assert [button.label for button in app.button] == ["Start a smoke run", "Choose a configuration"]


def test_no_script_is_run_but_our_own_file() -> None:
    told = "unsafe_allow_javascript"
    lines = [line for path in APP.parent.rglob("*.py") for line in path.read_text("utf-8").splitlines() if told in line]
    assert [line.strip() for line in lines] == [f'st.html(HERE / "static" / "opened.html", {told}=True)']


def test_one_run_is_listed_with_its_grade_and_score(opened: Open, root: Path) -> None:
    write_run(root, "alpha", steps=40, items=40, correct=0.6)
    app = opened(state.RUNS)
    table = app.dataframe[0].value
    assert table["run"].tolist() == ["alpha"]
    assert [list(cell) for cell in table["grade"]] == [["● consistent"]]
    assert table["steps"].tolist() == [40]
    assert 0 < table["score"].iloc[0] < 100
    assert table["interval"].iloc[0].endswith(" %")


def test_broken_folders_are_listed_and_open(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    (root / "torn").mkdir()
    (root / "torn" / "run_manifest.json").write_text('{"run_id": ')
    (root / "other").mkdir()
    (root / "other" / "notes.txt").write_text("nothing")
    table = opened(state.RUNS).dataframe[0].value
    assert sorted(table["run"]) == ["alpha", "other", "torn"]
    text = said(opened(state.RUN, run="torn", view="Problems"))
    assert "This is not JSON" in text
    assert "tp-edge-bad" in text


@pytest.mark.parametrize(
    "view", ["Curves", "Plan", "Configuration", "Examples", "Predictions", "Log", "Reproduce", "Files", "Problems"]
)
@pytest.mark.parametrize("broken", [False, True], ids=["whole", "with nothing in it"])
def test_every_section_of_a_run_draws(opened: Open, root: Path, view: str, broken: bool) -> None:
    if broken:
        (root / "alpha").mkdir(parents=True)
        (root / "alpha" / "run_manifest.json").write_text("[]")
    else:
        write_run(root, "alpha")
    opened(state.RUN, run="alpha", view=view)


def test_a_run_that_is_not_there_is_named(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    assert "There is no run &lt;b&gt; in" in said(opened(state.RUN, run="<b>"))


def test_a_running_run_shows_how_far_it_is_and_a_killed_one_offers_to_resume(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    with RunLock(folder):
        app = opened(state.RUN, run="alpha")
        assert "running" in said(app)
        assert "Resume" not in [button.label for button in app.button]
    app = opened(state.RUN, run="alpha")
    assert "interrupted" in said(app)
    assert "Resume" not in [button.label for button in app.button], "there is no checkpoint"
    (folder / "checkpoints" / "20").mkdir(parents=True)
    assert "Resume" in [button.label for button in opened(state.RUN, run="alpha").button]


def test_the_filters_of_the_address_hold(opened: Open, root: Path) -> None:
    write_run(root, "alpha", steps=40)
    write_run(root, "beta", steps=10, mode="smoke", items=0)
    assert opened(state.RUNS, q="steps<20").dataframe[0].value["run"].tolist() == ["beta"]
    assert opened(state.RUNS, mode="full").dataframe[0].value["run"].tolist() == ["alpha"]
    assert "No run matches" in said(opened(state.RUNS, q="nothing-like-it"))
    assert "Unknown field colour" in said(opened(state.RUNS, q="colour:red"))


def test_two_runs_are_compared_with_statistics(opened: Open, root: Path) -> None:
    write_run(root, "alpha", items=40, correct=0.3, seed=1)
    write_run(root, "beta", items=40, correct=0.9, seed=2)
    text = said(opened(state.COMPARE, runs=["alpha", "beta"]))
    assert "exact McNemar, p" in text
    assert "▲</span>better" in text


def test_scores_of_different_questions_are_refused_with_the_reason(opened: Open, root: Path) -> None:
    write_run(root, "alpha", items=40)
    write_run(root, "beta", items=30)
    text = said(opened(state.COMPARE, runs=["alpha", "beta"]))
    assert "∅</span>not compared" in text
    assert "10 items" in text


def test_a_smoke_run_beside_a_full_one_leads_to_what_it_shows(opened: Open, root: Path) -> None:
    write_run(root, "full", steps=40)
    write_run(root, "rehearsal", steps=2, mode="smoke", items=0)
    assert "This is a smoke run and a full run: see Smoke → TPU above." in said(
        opened(state.COMPARE, runs=["rehearsal", "full"])
    )
    assert "It does not show" in said(opened(state.COMPARE, runs=["rehearsal", "full"], part="Smoke → TPU"))


def test_a_wrong_value_in_the_form_is_named_at_once_and_stops_the_start(opened: Open) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    start = next(button for button in app.button if button.label == "Start")
    assert not start.disabled
    next(field for field in app.text_input if field.label == "Name").set_value("a b").run()
    assert next(button for button in app.button if button.label == "Start").disabled
    assert "at name" in said(app)


def test_a_checklist_names_what_stands_in_the_way(opened: Open, root: Path) -> None:
    (root / "alpha").mkdir(parents=True)
    (root / "alpha" / "run_manifest.json").write_text("{}")
    app = opened(state.PACKAGE, runs=["alpha"])
    assert "blocked" in said(app)
    assert "Build" not in [button.label for button in app.button]


def test_an_address_of_every_interface_without_a_login_shows_nothing_but_why(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streamlit as st

    option = st.get_option
    monkeypatch.setattr(st, "get_option", lambda key: "0.0.0.0" if key == "server.address" else option(key))
    write_run(root, "alpha")
    app = AppTest.from_file(APP, default_timeout=60).run()
    assert "does not listen on 0.0.0.0" in said(app)
    assert not app.dataframe
