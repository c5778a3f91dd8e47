"""The shared index: visitors watch one reading, and a visitor who leaves does not stop it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import write_run

from dashboard.shared.reading.shared_index import SharedIndex
from evidence.index.index import RunIndex
from evidence.index.summary import RunSummary


class Slow(RunIndex):
    """An index whose reading waits for a word, and counts."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go_on = threading.Event()
        self.looks = self.under_way = self.most_at_once = 0

    def refresh(self, *, progress: Callable[[int, int], None] | None = None, rest: bool = False):
        self.looks += 1
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        if progress:
            progress(1, 2)
        self.go_on.wait()
        self.under_way -= 1
        return super().refresh(progress=progress, rest=rest)


def test_a_visitor_is_told_and_may_leave(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    index = Slow(tmp_path)
    shared = SharedIndex(index)

    class Left(Exception):  # noqa: N818 - what happens to a script, not an error
        pass

    def leave(done: int, total: int) -> None:
        assert (done, total) == (1, 2)
        raise Left

    with pytest.raises(Left):
        shared.known(leave)
    with pytest.raises(Left):
        shared.known(leave)
    assert index.looks == 1
    index.go_on.set()
    assert [summary.path.name for summary in shared.started().result()] == ["run"]


def test_pages_are_given_what_is_known_and_a_look_finds_what_is_new(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    index = Slow(tmp_path)
    index.go_on.set()
    shared = SharedIndex(index)
    first = shared.known(lambda done, total: None)
    assert [summary.path.name for summary in first] == ["run"]
    write_run(tmp_path, "second")
    index.go_on.clear()
    look = shared.started()
    assert shared.started() is look, "one look at a time"
    assert shared.known(lambda done, total: None) is first, "nobody waits for a look but the first"
    index.go_on.set()
    assert {summary.path.name for summary in look.result()} == {"run", "second"}
    assert shared.known(lambda done, total: None) is look.result()
    assert shared.started().result() is look.result(), "nothing changed: the same objects"


class Step(RunIndex):
    """An index that says it has read some of many runs, and waits for a word."""

    def __init__(self, root: Path, *, done: int, total: int) -> None:
        super().__init__(root)
        self.reading = (done, total)
        self.go_on = threading.Event()

    def refresh(self, *, progress: Callable[[int, int], None] | None = None, rest: bool = False):
        if progress:
            progress(*self.reading)
        self.go_on.wait(20)
        return super().refresh()

    def partial(self):
        return [RunSummary(path=self.root / "newest", run_id="newest", grade="consistent", reasons=())]


def test_of_a_long_first_reading_some_runs_are_enough(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    index = Step(tmp_path, done=20, total=10_000)
    shared = SharedIndex(index)
    told: list[tuple[int, int]] = []
    some = shared.known(lambda done, total: told.append((done, total)))
    assert [run.path.name for run in some] == ["newest"]
    assert told[0] == shared.progress == (20, 10_000)
    assert not shared.is_whole
    index.go_on.set()
    assert [run.path.name for run in shared.started().result()] == ["run"]
    assert shared.is_whole
    assert [run.path.name for run in shared.known(lambda done, total: None)] == ["run"]


@pytest.mark.parametrize(
    ("done", "total", "named"),
    [(19, 10_000, set()), (40, 41, set()), (20, 10_000, {"run"})],
    ids=["less than a screenful", "nearly done", "the link names another"],
)
def test_what_is_worth_waiting_for_is_waited_for(tmp_path: Path, done: int, total: int, named: set[str]) -> None:
    write_run(tmp_path, "run")
    index = Step(tmp_path, done=done, total=total)
    threading.Timer(0.5, index.go_on.set).start()
    found = SharedIndex(index).known(lambda done, total: None, named=named)
    assert [run.path.name for run in found] == ["run"]


def test_one_long_run_holds_up_no_other(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    write_run(tmp_path, "newest", seed=1)
    index = Step(tmp_path, done=1, total=2)
    shared = SharedIndex(index)
    assert [run.path.name for run in shared.known(lambda done, total: None)] == ["newest"]
    named = shared.known(lambda done, total: None, named=frozenset({"newest", "absent"}))
    assert [run.path.name for run in named] == ["newest"], "what is not there is not waited for"
    assert index.asked == {"newest"}
    index.go_on.set()


def test_what_a_page_has_changed_is_known_at_once(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    index = Slow(tmp_path)
    index.go_on.set()
    shared = SharedIndex(index)
    shared.known(lambda done, total: None)
    index.go_on.clear()
    shared.started()
    while not index.under_way:
        time.sleep(0.001)
    write_run(tmp_path, "second")
    threading.Timer(0.1, index.go_on.set).start()
    shared.look_again()
    assert (index.looks, index.most_at_once) == (3, 1), "it looks after the look that was under way"
    assert {summary.path.name for summary in shared.known(lambda done, total: None)} == {"run", "second"}


def test_a_server_that_is_stopped_does_not_finish_its_look(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from dashboard.shared.reading.shared_index import SharedIndex; from evidence.index.index import RunIndex\n"
        "index = RunIndex(Path(sys.argv[1])); index.refresh = lambda **_: time.sleep(100)\n"
        "print(SharedIndex(index).started().done())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "False\n", "")


def test_a_look_again_does_not_wait_for_the_very_first_look(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    index = Slow(tmp_path)
    shared = SharedIndex(index)
    look = shared.started()
    shared.look_again()
    assert not look.done()
    index.go_on.set()
    assert len(look.result(timeout=10)) == 1
    write_run(tmp_path, "second")
    shared.look_again()
    assert len(shared.known(lambda done, total: None)) == 2
