"""Pages show what is on disk, never the grade of files that have changed, and rerun when they have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared import reading, state
from dashboard.shared.shared_index import SharedIndex, Snapshot
from dashboard.shared.state import RUNS
from evidence.index.index import index_runs
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
def test_a_page_hides_the_grade_of_a_changed_run_until_it_is_graded_again(
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
        patched.setattr(reading, "WAIT_SECONDS", 0.0)
        patched.setattr(SharedIndex, "request", lambda self, **_: self._finished + 1)
        text = said(app.run())
        assert CHANGED in text
        assert "consistent" not in text.split("</style>")[-1]
        assert "valid" not in text
    text = said(app.run())
    assert CHANGED not in text
    assert (truth or GONE[page.title]) in text
    assert truth or "alpha</td>" not in text


def test_a_run_at_work_is_not_called_changed(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    with RunLock(folder):
        app = opened(state.RUN, run="alpha")
        with (folder / "log.jsonl").open("a") as file:
            file.write("{}\n")
        assert "Changed on disk" not in said(app.run())


class Rerun(Exception):  # noqa: N818 - what Streamlit does, not an error
    pass


@pytest.fixture
def tick(opened: Open, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Return a function that does what the timer of an open page does, and returns whether it reruns the page."""
    watched: list[tuple] = []
    original = reading._tick
    monkeypatch.setattr(reading, "_tick", lambda *given: (watched.append(given), original(*given)))

    def rerun() -> None:
        raise Rerun

    def run() -> bool:
        shown, drawn, _ = watched[-1]
        with monkeypatch.context() as patched:
            patched.setattr(reading.st, "rerun", rerun)
            patched.setattr(reading, "_announce", lambda: None)
            reading.look_again()
            try:
                original(shown, drawn, 0.0)
            except Rerun:
                return True
            return False

    return run


@pytest.mark.parametrize("page", [state.RUNS, state.RUN], ids=lambda page: page.title)
@pytest.mark.parametrize("damage", [forge, shutil.rmtree], ids=["forged", "deleted"])
def test_an_open_page_reruns_when_a_run_changes(
    opened: Open, root: Path, tick: Callable[[], bool], page: state.Page, damage: Callable[[Path], None]
) -> None:
    folder = write_run(root, "alpha")
    write_run(root, "beta", seed=1)
    opened(page, **({"run": "alpha"} if page is state.RUN else {}))
    assert not tick()
    damage(folder)
    assert tick()


def test_an_open_page_reruns_for_a_new_run_and_not_under_a_dialog(
    opened: Open, root: Path, tick: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(root, "alpha")
    opened(state.RUNS)
    write_run(root, "beta", seed=1)
    with monkeypatch.context() as patched:
        patched.setattr(state, "has_dialog", lambda: True)
        assert not tick()
    assert tick()


def test_an_open_page_does_not_rerun_for_the_progress_of_a_run(
    opened: Open, root: Path, tick: Callable[[], bool]
) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    with RunLock(folder):
        opened(state.RUNS)
        rows = (folder / "metrics.jsonl").read_text("utf-8").splitlines(keepends=True)
        (folder / "metrics.jsonl").write_text("".join(rows[:-5]), "utf-8")
        assert not tick()
    assert tick()


def test_new_and_ended_runs_are_announced_once(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    folder = write_run(root, "beta *1*", steps=40, status="running")
    with RunLock(folder):
        app = opened(state.RUNS)
        assert not app.toast
    write_run(root, "gamma", seed=2)
    ended = r"beta \*1\*: interrupted. A signal, a time limit or a kill stopped it; it may be resumed."
    expected = [ended, "gamma: succeeded. All steps were done and the run was sealed."]
    assert sorted(toast.value for toast in app.run().toast) == expected
    assert not app.run().toast
    for number in range(5):
        write_run(root, f"more-{number}", seed=3 + number)
    assert app.run().toast[-1].value == "2 more runs are new or have ended."


def test_a_list_shows_new_changed_and_deleted_runs(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    app = opened(RUNS)
    assert app.dataframe[-1].value["run"].tolist() == ["alpha"]
    write_run(root, "beta", seed=1)
    assert sorted(app.run().dataframe[-1].value["run"]) == ["alpha", "beta"]
    (root / "beta" / "run_manifest.json").write_text("{")
    table = app.run().dataframe[-1].value.set_index("run")
    assert table.loc["beta", "grade"] == ["◔ partial"]
    shutil.rmtree(root / "beta")
    assert app.run().dataframe[-1].value["run"].tolist() == ["alpha"]


def test_while_runs_are_read_for_the_first_time_the_page_says_so(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write_run(root, f"run-{number}", seed=number)
    whole = index_runs(root)

    def load(self: SharedIndex, patience: float, **_: object) -> Snapshot:
        self.progress = (3, 2000)
        return Snapshot(0, whole[:1])

    monkeypatch.setattr(SharedIndex, "load", load)
    app = opened(RUNS)
    (bar,) = app.get("progress")
    assert bar.proto.text == "Reading runs: 3 of 2,000. Showing the runs loaded so far."
    assert app.dataframe[-1].value["run"].tolist() == [whole[0].path.name]
