"""No page shows a verdict over files that are not on disk any more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared.reading.shared_index import SharedIndex
from dashboard.shared.session import reading, state
from evidence.layout import EVAL_SUMMARY, MANIFEST
from evidence.lock import RunLock

CHANGED = "Changed on disk since it was checked: alpha. Checking again."


def forge(folder: Path) -> None:
    document = json.loads((folder / EVAL_SUMMARY).read_text("utf-8"))
    document["metrics"]["exact_match"]["value"] = 0.99
    (folder / EVAL_SUMMARY).write_text(json.dumps(document), "utf-8")


def truncate(folder: Path) -> None:
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:300])


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "forged": (forge, "contradictory"),
    "truncated": (truncate, "partial"),
    "deleted": (shutil.rmtree, ""),
}
GONE = {
    "Run": "There is no run alpha in ",
    "Compare": "Choose a run to compare with beta",
    "Package": 'tp-scroll"',
}


@pytest.mark.parametrize(("damage", "truth"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("page", [state.RUN, state.COMPARE, state.PACKAGE], ids=lambda page: page.title)
def test_an_open_page_says_that_a_run_changed_and_then_the_truth(
    opened: Open,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: state.Page,
    damage: Callable[[Path], None],
    truth: str,
) -> None:
    folder = write_run(root, "alpha")
    write_run(root, "beta", seed=1)
    write_run(root, "gamma", seed=2)
    app = opened(page, run="alpha") if page is state.RUN else opened(page, runs=["alpha", "beta"])
    assert CHANGED not in said(app)
    damage(folder)
    with monkeypatch.context() as patched:
        patched.setattr(SharedIndex, "started", lambda self: Future())
        patched.setattr(reading, "catch_up", lambda: None)
        text = said(app.run())
        assert CHANGED in text
        assert "consistent" not in text.split("</style>")[-1]
        assert "valid" not in text
    text = said(app.run())
    assert CHANGED not in text
    assert (truth or GONE[page.title]) in text
    assert truth or "alpha</td>" not in text


def test_a_run_at_work_is_followed_and_not_called_changed(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    with RunLock(folder):
        app = opened(state.RUN, run="alpha")
        with (folder / "log.jsonl").open("a") as file:
            file.write("{}\n")
        assert "Changed on disk" not in said(app.run())
