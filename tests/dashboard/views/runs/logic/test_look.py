"""What search and filters leave of a list."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import STARTED, write_run

from dashboard.shared.tables.run_rows import Listing, RowCache
from dashboard.views.runs.logic.look import Look, filter_runs, news
from evidence.index.index import index_runs
from evidence.index.summary import RunSummary
from evidence.notes import NotesEdit, change_notes


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Listing:
    root: Path = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(("alpha", "beta", "gamma")):
        write_run(root, name, steps=10 * (number + 1), seed=number, mode="smoke" if name == "gamma" else "full")
    change_notes([root / "beta", root / "gamma"], NotesEdit(add=("baseline",)), STARTED)
    change_notes([root / "beta"], NotesEdit(archive=True), STARTED)
    return RowCache().listing(index_runs(root))


@pytest.mark.parametrize(
    ("look", "names"),
    [
        (Look(), {"alpha", "gamma"}),
        (Look(archived=True), {"alpha", "beta", "gamma"}),
        (Look(search="steps>15", archived=True), {"beta", "gamma"}),
        (Look(filters={"mode": ["full"], "status": []}, archived=True), {"alpha", "beta"}),
        (Look(filters={"mode": ["full", "smoke"], "tag": ["baseline", "gone"]}, archived=True), {"beta", "gamma"}),
        (Look(filters={"grade": ["nonsense"]}), set()),
    ],
)
def test_search_and_filters_leave_what_meets_all_of_them(listing: Listing, look: Look, names: set[str]) -> None:
    kept, complaints = filter_runs(listing, look)
    assert ({row.name for row in kept}, list(complaints)) == (names, [])


def test_what_a_search_does_not_know_is_said(listing: Listing) -> None:
    kept, complaints = filter_runs(listing, Look(search="loss<low"))
    assert (len(kept), list(complaints)) == (2, ["loss< needs a number or a date, not low."])


def runs(**statuses: str) -> list[RunSummary]:
    return [
        RunSummary(path=Path("root") / name, run_id=name, grade="partial", reasons=("It is a test.",), status=status)
        for name, status in statuses.items()
    ]


def test_nothing_new_is_not_said() -> None:
    assert news(runs(a="running", b="failed"), runs(b="failed", a="running")) == ""


def test_what_came_went_and_ended_is_counted() -> None:
    before = runs(a="running", b="running", c="failed", d="failed")
    assert news(before, runs(a="running", b="succeeded", c="failed", e="running", f="running")) == (
        "2 new runs, 1 run that ended and 1 run whose folder is gone"
    )
    assert news([], runs(a="running")) == "1 new run"


def test_a_run_whose_folder_is_gone_did_not_end() -> None:
    assert news(runs(a="running"), []) == "1 run whose folder is gone"
