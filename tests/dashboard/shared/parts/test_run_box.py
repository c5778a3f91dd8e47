"""The box of runs: all of some, the newest of many, and any other by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared.parts import run_box
from dashboard.shared.state import COMPARE, PACKAGE


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
