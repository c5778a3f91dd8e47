"""What a list that stands open says of the folders since."""

from __future__ import annotations

from pathlib import Path

from dashboard.pages.runs.logic.news import news
from evidence.index.runs import RunSummary


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
