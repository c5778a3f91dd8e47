"""Pages in their states, without a browser: empty, one run, broken, running, hostile, many."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import APP, Open, said
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import state


@pytest.mark.parametrize("page", state.PAGES, ids=lambda page: page.title)
def test_every_page_of_an_empty_root_says_what_to_do(opened: Open, page: state.Page) -> None:
    app = opened(page)
    text = said(app)
    if page is state.LAUNCH:
        assert "Start from" in [widget.label for widget in app.selectbox]
    else:
        assert "tp-empty" in text


def test_no_script_is_run_but_our_own_file() -> None:
    told = "unsafe_allow_javascript"
    lines = [line for path in APP.parent.rglob("*.py") for line in path.read_text("utf-8").splitlines() if told in line]
    assert [line.strip() for line in lines] == [f'st.html(HERE / "static" / "opened.html", {told}=True)']


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
