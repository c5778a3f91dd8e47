"""Planning is a process: what it says, that it cannot be planned, that it takes too long, that it was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from stand_ins import wait_for

from launch import asking, planning
from launch.jobs.folder import PROCESS

CONFIG = {"name": "x"}


def program(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(asking, "PROGRAM", (sys.executable, "-c", code))


def answer(folder: Path, working_folder: Path, *options: str, limit_seconds: float = 60.0) -> None:
    arguments = ["plan", "--config", str(folder / "config.yaml"), *options, "--json"]
    asking.main(folder, working_folder, limit_seconds, arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a question that was written down and not answered yet."""
    folder = planning.folder_of(tmp_path, CONFIG)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: x\n")
    return folder


def test_why_there_is_no_plan_is_what_the_program_said(tmp_path: Path) -> None:
    assert planning.planning(tmp_path, {"name": "x y"}).state == "none"
    planning.ask(tmp_path, {"name": "x y"})
    wait_for(lambda: planning.planning(tmp_path, {"name": "x y"}).state != "running")
    found = planning.planning(tmp_path, {"name": "x y"})
    assert (found.state, found.exit_code) == ("failed", 2)
    assert "at name (line" in found.output


def test_an_answer_is_kept_with_its_verdict(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "print('{\"need_bytes\": 9}'); raise SystemExit(3)")
    answer(folder, tmp_path)
    found = planning.planning(tmp_path, CONFIG)
    assert (found.state, found.answer, found.exit_code) == ("answered", {"need_bytes": 9}, 3)
    assert planning.planning(tmp_path, {"name": "y"}).state == "none"


def test_an_answer_that_came_with_the_root_is_not_believed(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "answer.json").write_text('{"need_bytes": 9}')
    (folder / "exit_code").write_text("0\n")
    assert planning.planning(tmp_path, CONFIG) == asking.PlanRequest(state="none")
    program(monkeypatch, "print('{\"need_bytes\": 9}')")
    answer(folder, tmp_path)
    assert planning.planning(tmp_path, CONFIG).state == "answered"
    (folder / "answer.json").write_text('{"need_bytes": 8}')
    assert planning.planning(tmp_path, CONFIG) == asking.PlanRequest(state="none")


def test_what_takes_too_long_is_stopped_with_all_it_started(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, "import time; time.sleep(60)")
    answer(folder, tmp_path, limit_seconds=0.3)
    found = planning.planning(tmp_path, CONFIG)
    assert (found.state, found.exit_code) == ("failed", asking.TIMED_OUT)
    assert found.output == "It was stopped after 0 minutes."
    # What another test started and did not wait for has no command line any more.
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in alive if "time.sleep(60)" in " ".join(child.cmdline())]


def test_one_that_was_killed_is_not_waited_for(tmp_path: Path, folder: Path) -> None:
    (folder / PROCESS).write_text(json.dumps({"pid": 2**22 - 1, "created": 1.0}))
    assert planning.planning(tmp_path, CONFIG).state == "failed"


def test_another_option_is_another_question(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "import sys, json; print(json.dumps({'where': sys.argv[1:]}))")
    other = planning.folder_of(tmp_path, CONFIG, ["--where"])
    other.mkdir()
    (other / "config.yaml").write_text("name: x\n")
    answer(other, tmp_path, "--where")
    found = planning.planning(tmp_path, CONFIG, ["--where"])
    assert found.answer == {"where": ["plan", "--config", str(other / "config.yaml"), "--where", "--json"]}
    assert planning.planning(tmp_path, CONFIG).answer is None


def test_one_that_nobody_wants_any_more_ends_with_all_it_started(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler is a process with a session of its own, which a signal to the program's group does not reach."""
    pid = tmp_path / "pid"
    compiler = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {compiler!r}], start_new_session=True)"
    program(monkeypatch, start)
    waiting = threading.Thread(target=answer, args=(folder, tmp_path))
    waiting.start()
    wait_for(lambda: pid.exists() and pid.read_text() != "")
    process = psutil.Process(int(pid.read_text()))
    (folder / PROCESS).write_text(json.dumps({"pid": os.getpid(), "created": psutil.Process().create_time()}))
    assert planning.planning(tmp_path, CONFIG).state == "running"
    planning.cancel(tmp_path, CONFIG)
    waiting.join()
    assert planning.planning(tmp_path, CONFIG).state == "cancelled"
    wait_for(lambda: has_ended(process), seconds=30)


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_another_planner_or_a_compiler_installed_since_is_asked_anew(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, "print('{\"need_bytes\": 9}')")
    answer(folder, tmp_path)
    assert planning.planning(tmp_path, CONFIG).state == "answered"
    installed = planning.version
    monkeypatch.setattr(planning, "version", lambda name: "1.0" if name == "libtpu" else installed(name))
    planning.planner.cache_clear()
    assert planning.planning(tmp_path, CONFIG).state == "none"
    monkeypatch.undo()
    planning.planner.cache_clear()
    assert planning.planning(tmp_path, CONFIG).state == "answered"


def test_a_forgotten_answer_was_never_asked_for(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "print('{\"need_bytes\": 9}')")
    answer(folder, tmp_path)
    planning.forget(tmp_path, CONFIG)
    assert planning.planning(tmp_path, CONFIG) == asking.PlanRequest(state="none")
    planning.forget(tmp_path, CONFIG)


def test_a_plan_that_nobody_looks_at_any_more_is_cancelled_with_all_it_started(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, "import time; time.sleep(60)")
    waiting = threading.Thread(
        target=asking.main, args=(folder, tmp_path, 60.0, ["plan"]), kwargs={"watched_seconds": 30.0}
    )
    asking.watch(folder)
    waiting.start()
    wait_for(lambda: bool(sleeping()))
    (folder / PROCESS).write_text(json.dumps({"pid": os.getpid(), "created": psutil.Process().create_time()}))
    assert planning.planning(tmp_path, CONFIG).state == "running", "somebody looked just now"
    os.utime(folder / "watched", (1.0, 1.0))
    waiting.join()
    assert planning.planning(tmp_path, CONFIG).state == "cancelled", "it is asked again when somebody looks again"
    assert not sleeping()


def sleeping() -> list[psutil.Process]:
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "time.sleep(60)" in " ".join(child.cmdline())]


ASKER = """
import sys, time
from pathlib import Path
from launch import planning
planning.ask(Path(sys.argv[1]), {"name": "x"})
time.sleep(60)
"""


def test_a_plan_ends_with_the_dashboard_that_asked_for_it(tmp_path: Path) -> None:
    """One that is killed: nothing of it is left that could cancel."""
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(tmp_path)])
    wait_for(lambda: planning.planning(tmp_path, CONFIG).state == "running")
    [waiter] = [child for child in psutil.Process(asker.pid).children() if child.is_running()]
    wait_for(lambda: bool(waiter.children()))
    everything = [waiter, *waiter.children(recursive=True)]
    asker.kill()
    asker.wait()
    wait_for(lambda: not any(process.is_running() for process in everything))
    assert planning.planning(tmp_path, CONFIG).state == "cancelled"
