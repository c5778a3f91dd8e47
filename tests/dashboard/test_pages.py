"""Pages in their states, without a browser: empty, one run, broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import APP, SECTIONS, Open, said
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import state


@pytest.mark.parametrize("page", state.PAGES, ids=lambda page: page.title)
def test_every_page_of_an_empty_root_says_what_to_do(opened: Open, page: state.Page) -> None:
    app = opened(page)
    if page is state.LAUNCH:
        assert "Start from" in [widget.label for widget in app.selectbox]
    else:
        assert "tp-empty" in said(app)


def test_no_script_is_run_but_our_own_file() -> None:
    told = "unsafe_allow_javascript"
    lines = [line for path in APP.parent.rglob("*.py") for line in path.read_text("utf-8").splitlines() if told in line]
    assert [line.strip() for line in lines] == [f'st.html(HERE / "static" / "opened.html", {told}=True)']


def test_broken_folders_are_listed_and_open(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    for name, file, text in (("torn", "run_manifest.json", '{"run_id": '), ("other", "notes.txt", "nothing")):
        (root / name).mkdir()
        (root / name / file).write_text(text)
    assert sorted(opened(state.RUNS).dataframe[0].value["run"]) == ["alpha", "other", "torn"]
    text = said(opened(state.RUN, run="torn", view="Problems"))
    assert "This is not JSON" in text
    assert "tp-edge-bad" in text


@pytest.mark.parametrize("view", SECTIONS)
@pytest.mark.parametrize("broken", [False, True], ids=["whole", "with nothing in it"])
def test_every_section_of_a_run_draws(opened: Open, root: Path, view: str, broken: bool) -> None:
    folder = write_run(root, "alpha")
    if broken:
        for path in folder.iterdir():
            path.unlink()
        (folder / "run_manifest.json").write_text("[]")
    opened(state.RUN, run="alpha", view=view)


def test_on_every_interface_nothing_is_shown_without_a_login(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streamlit as st

    option = st.get_option
    monkeypatch.setattr(st, "get_option", lambda key: "0.0.0.0" if key == "server.address" else option(key))
    write_run(root, "alpha")
    app = AppTest.from_file(APP, default_timeout=60).run()
    assert "does not listen on 0.0.0.0" in said(app)
    assert not app.dataframe
