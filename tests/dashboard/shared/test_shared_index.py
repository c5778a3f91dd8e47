"""The shared index: one thread refreshes it, pages wait only as long as they want, and versions tell what changed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import write_run

from dashboard.shared.shared_index import SharedIndex
from evidence.index.index import RunIndex
from evidence.lock import RunLock

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
        rows = (folder / "metrics.jsonl").read_text("utf-8").splitlines(keepends=True)
        (folder / "metrics.jsonl").write_text("".join(rows[:-5]), "utf-8")
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


def test_an_error_reaches_the_page_and_the_next_request_tries_again(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        "from dashboard.shared.shared_index import SharedIndex; from evidence.index.index import RunIndex\n"
        "index = RunIndex(Path(sys.argv[1])); index.refresh = lambda **_: time.sleep(100)\n"
        "print(SharedIndex(index).request())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
