"""Pages show what is on disk, and never the grade of changed files; one thread refreshes the index for all pages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mutations import apply
from pages import Open, said
from synthetic import write_run

from dashboard.shared import reading, state
from dashboard.shared.reading import SharedIndex, Snapshot
from evidence.index.index import RunIndex, index_runs
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS
from evidence.lock import RunLock

CHANGED = "Changed on disk since it was checked: alpha. Checking again."


FORGED = {"file": EVAL_SUMMARY, "pointer": "/metrics/exact_match/value", "value": 0.99}
DAMAGES: dict[str, Callable[[Path], object]] = {
    "contradictory": lambda folder: apply(folder, FORGED),
    "partial": lambda folder: (folder / MANIFEST).write_text("{"),
    "": shutil.rmtree,
}
GONE = {
    "Run": "There is no run alpha in ",
    "Compare": "Choose a run to compare with beta",
    "Package": 'tp-scroll"',
}


@pytest.mark.parametrize("truth", DAMAGES, ids=["forged", "truncated", "deleted"])
@pytest.mark.parametrize("page", [state.RUN, state.COMPARE, state.PACKAGE], ids=lambda page: page.title)
def test_a_page_hides_the_grade_of_a_changed_run_until_it_is_graded_again(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch, page: state.Page, truth: str
) -> None:
    folder, *_ = (write_run(root, name, seed=seed) for seed, name in enumerate(("alpha", "beta", "gamma")))
    app = opened(page, run="alpha") if page is state.RUN else opened(page, runs=["alpha", "beta"])
    assert CHANGED not in said(app)
    DAMAGES[truth](folder)
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
        apply(folder, {"file": LOG, "append": "{}\n"})
        assert "Changed on disk" not in said(app.run())


def test_new_changed_and_deleted_runs_are_listed_and_announced_once(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    folder = write_run(root, "beta *1*", steps=40, status="running")
    with RunLock(folder):
        app = opened(state.RUNS)
        assert not app.toast
    gamma = write_run(root, "gamma", seed=2)
    ended = r"beta \*1\*: interrupted. A signal, a time limit or a kill stopped it; it may be resumed."
    expected = [ended, "gamma: succeeded. All steps were done and the run was sealed."]
    assert sorted(toast.value for toast in app.run().toast) == expected
    assert sorted(app.dataframe[-1].value["run"]) == ["alpha", "beta *1*", "gamma"]
    (gamma / MANIFEST).write_text("{")
    assert app.run().dataframe[-1].value.set_index("run").loc["gamma", "grade"] == ["◔ partial"]
    assert not app.toast
    shutil.rmtree(gamma)
    assert sorted(app.run().dataframe[-1].value["run"]) == ["alpha", "beta *1*"]
    for number in range(5):
        write_run(root, f"more-{number}", seed=3 + number)
    assert app.run().toast[-1].value == "2 more runs are new or have ended."


def test_the_first_reading_shows_its_progress(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, "alpha")
    whole = index_runs(root)

    def load(self: SharedIndex, patience: float, **_: object) -> Snapshot:
        self.progress = (3, 2000)
        return Snapshot(0, whole)

    monkeypatch.setattr(SharedIndex, "load", load)
    app = opened(state.RUNS)
    (bar,) = app.get("progress")
    assert bar.proto.text == "Reading runs: 3 of 2,000. Showing the runs loaded so far."
    assert app.dataframe[-1].value["run"].tolist() == ["alpha"]


# The shared index


LONG = 30.0


class Slow(RunIndex):
    """An index whose refresh waits for `go_on`, reports this progress, and counts."""

    def __init__(self, root: Path, progress: tuple[int, int] = (1, 2)) -> None:
        super().__init__(root)
        self.reading = progress
        self.go_on = threading.Event()
        self.refreshes = self.under_way = self.most_at_once = 0

    def refresh(self, *, progress: Callable[[int, int], None] | None = None, rest: bool = False):
        self.refreshes += 1
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        if progress:
            progress(*self.reading)
        self.go_on.wait(LONG)
        self.under_way -= 1
        return super().refresh(progress=progress, rest=rest)

    def partial(self):
        return [run for run in RunIndex(self.root).refresh() if run.path.name == "newest"]


@pytest.fixture
def slow(tmp_path: Path):
    write_run(tmp_path, "run")
    index = Slow(tmp_path)
    yield index
    index.go_on.set()


def names(shared: SharedIndex, seconds: float = 0.0, **more) -> set[str]:
    return {run.path.name for run in shared.load(seconds, **more).runs}


def test_a_visitor_may_leave_while_waiting(slow: Slow) -> None:
    shared = SharedIndex(slow)

    class Left(Exception):  # noqa: N818 - what happens to a script, not an error
        pass

    def leave() -> None:
        raise Left

    for _ in range(2):
        with pytest.raises(Left):
            shared.load(LONG, waiting=leave)
    assert slow.refreshes == 1
    slow.go_on.set()
    assert names(shared, LONG) == {"run"}


def test_nobody_waits_longer_than_wanted_and_one_refresh_runs_at_a_time(slow: Slow) -> None:
    slow.go_on.set()
    shared = SharedIndex(slow)
    first = shared.load(LONG)
    assert shared.load(LONG).runs is first.runs, "nothing changed: the same objects"
    assert shared.load(LONG).version == first.version
    slow.go_on.clear()
    write_run(slow.root, "second")
    for _ in range(3):
        assert names(shared) == {"run"}
    slow.go_on.set()
    second = shared.load(LONG)
    assert {run.path.name for run in second.runs} == {"run", "second"}
    assert second.version > first.version
    assert slow.most_at_once == 1


def test_a_version_ignores_the_progress_of_a_run_but_not_its_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", steps=40, status="running")
    shared = SharedIndex(RunIndex(tmp_path))
    with RunLock(folder):
        first = shared.load(LONG)
        apply(folder, {"file": METRICS, "remove_line": 20})
        shared.refresh(LONG)
        later = shared.load(LONG)
        assert later.runs != first.runs
        assert later.version == first.version
    assert shared.load(LONG).version > first.version


def test_runs_read_so_far_are_shown_during_a_long_first_reading(slow: Slow) -> None:
    write_run(slow.root, "newest", seed=1)
    slow.reading = (20, 10_000)
    shared = SharedIndex(slow)
    assert names(shared) == {"newest"}
    assert shared.progress == (20, 10_000)
    assert not shared.is_whole
    assert names(shared, named=frozenset({"newest", "absent"})) == {"newest"}, "what does not exist is not waited for"
    threading.Timer(1.5, slow.go_on.set).start()
    assert names(shared, named=frozenset({"run"})) == {"run", "newest"}, "a link names it"
    assert slow.asked == {"run"}
    assert shared.is_whole


def test_a_page_sees_what_it_has_just_written(slow: Slow) -> None:
    shared = SharedIndex(slow)
    shared.refresh(LONG)
    assert not shared.is_whole, "the first reading is not waited for"
    slow.go_on.set()
    shared.load(LONG)
    slow.go_on.clear()
    shared.request()
    while not slow.under_way:
        time.sleep(0.001)
    write_run(slow.root, "second")
    threading.Timer(0.1, slow.go_on.set).start()
    shared.refresh(LONG)
    assert {run.path.name for run in shared.runs} == {"run", "second"}


def test_after_an_error_the_next_request_tries_again(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.go_on.set()
    shared = SharedIndex(slow)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with monkeypatch.context() as patched:
        patched.setattr(slow, "refresh", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            shared.load(LONG)
    assert names(shared, LONG) == {"run"}


def test_a_server_that_is_stopped_does_not_finish_its_refresh(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from dashboard.shared.reading import SharedIndex; from evidence.index.index import RunIndex\n"
        "index = RunIndex(Path(sys.argv[1])); index.refresh = lambda **_: time.sleep(100)\n"
        "print(SharedIndex(index).request())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
