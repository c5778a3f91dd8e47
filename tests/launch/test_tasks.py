"""Background tasks with small programs instead of trainproof: answers, failures, limits, cancelling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from stand_ins import wait_for

from launch import process, tasks
from launch.jobs import mark_started
from launch.tasks import Task, TaskResult, parse_events, plan_task, play_task, replay_task

CONFIG = {"name": "x"}
ANSWER = "print('{\"need_bytes\": 9}')"
Program = Callable[[str], None]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """Replace trainproof by a program."""
    return lambda code: monkeypatch.setattr(tasks, "PROGRAM", (sys.executable, "-c", code))


def run(task: Task, limit_seconds: float = 60.0, watch_seconds: float = 60.0) -> None:
    """Run a task in this process."""
    task.folder.mkdir(parents=True, exist_ok=True)
    for name, text in task.files.items():
        (task.folder / name).write_text(text)
    tasks.main(task.folder, task.folder, limit_seconds, watch_seconds, list(task.arguments))


def run_in_thread(task: Task) -> threading.Thread:
    """Run a task in a thread, recorded as a process."""
    task.folder.mkdir(parents=True, exist_ok=True)
    own = process.identify(os.getpid())
    mark_started(task.folder, own, own)
    thread = threading.Thread(target=run, args=(task, 60.0, 30.0))
    thread.start()
    return thread


def sleepers() -> list[psutil.Process]:
    found = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in found if "time.sleep(60)" in " ".join(child.cmdline())]


def test_a_failure_has_the_output_of_the_real_program(tmp_path: Path) -> None:
    task = plan_task(tmp_path, {"name": "x y"})
    assert task.result() == TaskResult(state="none")
    task.start()
    wait_for(lambda: task.result().state != "running")
    found = task.result()
    assert (found.state, found.exit_code) == ("failed", 2)
    assert "at name (line" in found.output


def test_each_question_has_its_own_answer(tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program(f"{ANSWER}; raise SystemExit(3)")
    task = plan_task(tmp_path, CONFIG)
    run(task)
    assert task.result() == TaskResult(state="answered", answer={"need_bytes": 9}, exit_code=3)
    program("import sys, json; print(json.dumps({'asked': sys.argv[1:]}))")
    where = plan_task(tmp_path, CONFIG, ["--where"])
    run(where)
    config = str(where.folder / "config.yaml")
    assert where.result().answer == {"asked": ["plan", "--config", config, "--where", "--json"]}
    assert plan_task(tmp_path, CONFIG, tasks.CHECK).arguments[:2] == ["train", "--config"]
    replay = replay_task(tmp_path, tmp_path / "a", "0" * 64, "replay", ["--all"])
    run(replay, watch_seconds=replay.watch_seconds)
    assert replay.result().answer == {"asked": ["replay", str(tmp_path / "a"), "--all", "--json", "--json-lines"]}
    unasked = [
        plan_task(tmp_path, {"name": "y"}),
        plan_task(tmp_path, CONFIG, ["--grid"]),
        replay_task(tmp_path, tmp_path / "a", "1" * 64, "replay", ["--all"]),
    ]
    installed = tasks.version
    monkeypatch.setattr(tasks, "version", lambda name: "1.0" if name == "libtpu" else installed(name))
    tasks.planner_digest.cache_clear()
    unasked.append(plan_task(tmp_path, CONFIG))  # of another compiler
    tasks.planner_digest.cache_clear()
    assert [each.result().state for each in unasked] == ["none"] * 4
    task.forget()
    assert task.result() == TaskResult(state="none")
    task.forget()


def test_an_answer_without_the_seal_of_this_user_is_not_shown(tmp_path: Path, program: Program) -> None:
    task = plan_task(tmp_path, CONFIG)
    task.folder.mkdir(parents=True)
    (task.folder / "answer.json").write_text('{"need_bytes": 9}')
    (task.folder / "exit_code").write_text("0\n")
    assert task.result() == TaskResult(state="none")
    program(ANSWER)
    run(task)
    assert task.result().state == "answered"
    for name, text in {"answer.json": '{"need_bytes": 8}', "exit_code": "1\n", "output.log": "x"}.items():
        before = (task.folder / name).read_text()
        (task.folder / name).write_text(text)
        assert task.result() == TaskResult(state="none")
        (task.folder / name).write_text(before)


def test_a_killed_task_has_failed(tmp_path: Path) -> None:
    task = plan_task(tmp_path, CONFIG)
    task.folder.mkdir(parents=True)
    (task.folder / "process.json").write_text(json.dumps({"job": {"pid": 2**22 - 1, "created": 1.0}}))
    assert task.result().state == "failed"


def test_a_task_that_takes_too_long_is_stopped(tmp_path: Path, program: Program) -> None:
    program("import time; time.sleep(60)")
    task = plan_task(tmp_path, CONFIG)
    run(task, limit_seconds=0.3)
    expected = TaskResult(state="failed", exit_code=tasks.TIMED_OUT, output="Stopped after 0 minutes.")
    assert task.result() == expected
    assert not sleepers()


def test_cancel_ends_the_program_and_children_with_their_own_session(tmp_path: Path, program: Program) -> None:
    pid = tmp_path / "pid"
    compiler = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {compiler!r}], start_new_session=True)")
    task = plan_task(tmp_path, CONFIG)
    thread = run_in_thread(task)
    wait_for(lambda: pid.exists() and pid.read_text() != "")
    child = psutil.Process(int(pid.read_text()))
    assert task.result().state == "running"
    task.start()
    assert task.result().state == "running", "a running task is not started again"
    task.cancel()
    thread.join()
    assert task.result().state == "cancelled"
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_task_that_no_page_watches_is_cancelled(tmp_path: Path, program: Program) -> None:
    program("import time; time.sleep(60)")
    task = plan_task(tmp_path, CONFIG)
    thread = run_in_thread(task)
    task.watch()
    wait_for(lambda: bool(sleepers()))
    assert task.result().state == "running"
    os.utime(task.folder / "watched", (1.0, 1.0))
    thread.join()
    assert task.result().state == "cancelled"
    assert not sleepers()


START = """
import sys, time
from pathlib import Path
from launch.tasks import plan_task
plan_task(Path(sys.argv[1]), {"name": "x"}).start()
time.sleep(60)
"""


def test_a_plan_ends_when_the_dashboard_is_killed(tmp_path: Path) -> None:
    dashboard = subprocess.Popen([sys.executable, "-c", START, str(tmp_path)])
    task = plan_task(tmp_path, CONFIG)
    wait_for(lambda: task.result().state == "running")
    [waiter] = [child for child in psutil.Process(dashboard.pid).children() if child.is_running()]
    wait_for(lambda: bool(waiter.children()))
    processes = [waiter, *waiter.children(recursive=True)]
    dashboard.kill()
    dashboard.wait()
    wait_for(lambda: not any(each.is_running() for each in processes))
    assert task.result().state == "cancelled"


def test_a_prompt_is_standard_input_and_its_answer_can_be_read_while_it_grows(tmp_path: Path, program: Program) -> None:
    go = tmp_path / "go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    program(f'import sys; print(sys.stdin.readline(), flush=True)\n{wait}\nprint(\'{{"event": "done"}}\')')
    question = {"prompt": "3+4\n<b>"}
    task = play_task(tmp_path, tmp_path / "a", question)
    assert not any("<b>" in word for word in task.arguments)
    thread = run_in_thread(task)
    wait_for(lambda: task.result().answer == {"events": [question]})
    assert task.result().state == "running"
    go.touch()
    thread.join()
    assert task.result().answer == {"events": [question, {"event": "done"}]}
    assert replace(play_task(tmp_path, tmp_path / "a", question), files={}).result().state == "none", "another task"


def test_a_cancelled_prompt_leaves_no_files_and_is_never_half_there(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("import time; time.sleep(60)")
    task = play_task(tmp_path, tmp_path / "a", {"prompt": "secret"})
    states = []
    remove = shutil.rmtree

    def look_and_remove(folder: Path, **options: bool) -> None:
        states.append(task.result().state)
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", look_and_remove)
    thread = run_in_thread(task)
    wait_for(lambda: bool(sleepers()))
    task.cancel()
    thread.join()
    assert (states, list(task.folder.parent.iterdir())) == (["none"], [])


def test_events_are_read_from_json_lines_among_messages() -> None:
    output = 'Reading the rows\n{"event": "step", "step": 7}\n{broken\n[1]\n' + "[" * 100_000
    assert parse_events(output) == [{"event": "step", "step": 7}]
