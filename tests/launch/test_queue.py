"""Jobs are real processes here: a queue that only works on paper is worth nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import yaml
from stand_ins import put, stand_in, wait_for
from synthetic import write_run

from evidence import hashes, lock
from evidence.layout import LOCK
from evidence.run import read_run
from launch import queue as control
from launch import worker
from launch.jobs import process, working
from launch.jobs.folder import (
    OUTPUT,
    PROCESS,
    Job,
    JobReader,
    enqueue,
    jobs,
    launch_folder,
    mark_ended,
    new_job_folder,
    read_job,
)
from launch.jobs.output import tail
from launch.jobs.process import StartedProcess
from launch.places.place import Place
from launch.worker import startable
from schemas.problems import ProblemError
from schemas.reading import read_yaml
from schemas.render import render_text

POLITE = """
import signal, sys, time
print("ready", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("sealed", flush=True)
    sys.exit(5)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGINT, lambda *_: print('heard', flush=True)); "
    "print('ready', flush=True); time.sleep(60); time.sleep(60)"
)


def now(job: Job) -> Job:
    again = read_job(job.folder)
    assert again is not None
    return again


def until(file: Path) -> str:
    """Return code that says that it is ready and ends once a file is there."""
    wait = f"while not pathlib.Path({str(file)!r}).exists(): time.sleep(0.01)"
    return f"import pathlib, time; print('ready', flush=True)\n{wait}\n"


def output(job: Job) -> str:
    path = job.folder / OUTPUT
    return path.read_text("utf-8") if path.exists() else ""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch)
    yield tmp_path
    for job in jobs(tmp_path):
        control.kill(job)
    wait_for(lambda: not working.is_worked_on(tmp_path))


def test_jobs_run_one_at_a_time_in_order_and_leave_their_output_and_exit_code(root: Path) -> None:
    alone = root / "alone"
    code = (
        f"import pathlib; one = pathlib.Path({str(alone)!r}); one.touch(exist_ok=False); print('alone'); one.unlink()"
    )
    queued = [put(root, code) for _ in range(3)]
    assert [job.state for job in jobs(root)] == ["waiting"] * 3
    working.start_worker(root)
    wait_for(lambda: all(job.has_ended for job in jobs(root)))
    assert [(now(job).exit_code, output(job)) for job in queued] == [(0, "alone\n")] * 3
    started = [now(job).started for job in queued]
    assert [one.created for one in started if one] == sorted(one.created for one in started if one)
    wait_for(lambda: not working.is_worked_on(root))


def test_each_device_runs_one_job_at_a_time_beside_the_others(root: Path) -> None:
    first, second, third = put(root, POLITE, device="cpu"), put(root, "", device="cpu"), put(root, "", device="gpu")
    last = put(root, "")
    working.start_worker(root)
    wait_for(lambda: now(third).has_ended)
    wait_for(lambda: "ready" in output(first))
    assert [now(job).state for job in (first, second, last)] == ["running", "waiting", "waiting"]
    control.cancel(now(first))
    wait_for(lambda: now(last).has_ended)
    assert [now(job).exit_code for job in (first, second, third, last)] == [5, 0, 0, 0]


def test_a_job_that_takes_any_device_is_not_overtaken_for_ever(root: Path) -> None:
    put(root, "", device="cpu")
    any_device, gpu = put(root, ""), put(root, "", device="gpu")
    assert [job.device for job in startable(jobs(root))] == ["cpu"]
    control.move_up(root, gpu)
    assert [job.device for job in startable(jobs(root))] == ["cpu", "gpu"]
    assert any_device.shares_device(gpu)


def test_a_place_with_a_queue_of_its_own_takes_every_job_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Place(command=lambda job: ["elsewhere", job.run], has_own_queue=True)
    monkeypatch.setattr(
        worker, "PLACES", {**worker.PLACES, "cluster": elsewhere, "other": replace(elsewhere, has_own_queue=False)}
    )
    for place in ("local", "cluster", "local", "cluster", "other", "other"):
        put(root, "", place=place)
    assert [job.place for job in startable(jobs(root))] == ["local", "cluster", "cluster", "other"]


def test_a_place_is_known_or_nothing_is_started(root: Path) -> None:
    with pytest.raises(ProblemError) as raised:
        control.start(root, {"name": "here"}, place="moon")
    assert render_text(raised.value.problems) == MOON
    assert raised.value.exit_code == 2
    assert jobs(root) == []
    job = put(root, "", place="moon")
    working.start_worker(root)
    wait_for(lambda: now(job).has_ended)
    assert output(job) == "The run could not be started: moon is not one of the places local.\n"


def test_what_follows_a_job_runs_at_its_place_and_a_seal_of_before_places_holds(root: Path) -> None:
    job = put(root, "", place="cluster", device="cpu")
    assert (job.is_own, control.retry(root, job).place) == (True, "cluster")
    assert "place" not in json.loads((put(root, "").folder / "job.json").read_text("utf-8"))


MOON = """\
error TP768: moon: The place moon is unknown.
  A job can only be started at a known place.
  Expected: local.
  Next: Use one of the places in the message.
"""
SAYS_ITS_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"


@pytest.fixture
def posted() -> Iterator[tuple[str, list[tuple[str, dict[str, object]]]]]:
    """Yield the address of a server on this machine and what was posted to it; `/500` and `/301` are answered so."""
    found: list[tuple[str, dict[str, object]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            found.append((self.path, json.loads(content)))
            self.send_response(int(self.path[1:]) if self.path[1:].isdigit() else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", found
        server.shutdown()


def test_the_end_of_a_job_is_posted_where_the_environment_says(
    root: Path, posted: tuple[str, list[tuple[str, dict[str, object]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, found = posted
    monkeypatch.setenv("TRAINPROOF_WEBHOOK", f"{address}/hook?key=secret")
    job = put(root, "import sys; sys.exit(4)")
    working.start_worker(root)
    wait_for(lambda: bool(found))
    line = f"{job.run}: failed, exit code 4"
    body = {"text": line, "content": line, "run": job.run, "state": "failed", "exit_code": 4}
    assert found == [("/hook?key=secret", body)]
    assert output(job) == ""


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("{address}/500", "it answered 500"),
        ("{address}/301", "it answered 301"),
        ("http://127.0.0.1:9/hook?key=secret", "[Errno 111] Connection refused"),
        ("ftp://host/secret", "it is not an address of http or https"),
        ("http://[secret", "it is not an address of http or https"),
    ],
)
def test_an_end_that_cannot_be_posted_is_noted_and_the_queue_goes_on(
    root: Path,
    posted: tuple[str, list[tuple[str, dict[str, object]]]],
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    why: str,
) -> None:
    monkeypatch.setenv("TRAINPROOF_WEBHOOK", path.format(address=posted[0]))
    first, second = (put(root, "pass") for _ in range(2))
    working.start_worker(root)
    line = f"The end could not be posted to TRAINPROOF_WEBHOOK: {why}\n"
    wait_for(lambda: [output(first), output(second)] == [line, line])
    assert [now(job).state for job in (first, second)] == ["succeeded", "succeeded"]


def test_a_failed_job_is_tried_again_as_a_run_of_its_own(root: Path) -> None:
    config = {"name": "x", "mesh": {"device": "cpu"}, "code": f"{SAYS_ITS_ARGUMENTS}; sys.exit(4)"}
    failed = control.start(root, config, force=True)
    wait_for(lambda: now(failed).has_ended)
    again = control.retry(root, now(failed))
    wait_for(lambda: now(again).has_ended)
    assert (now(failed).state, again.device) == ("failed", "cpu")
    assert again.run != failed.run
    assert (again.folder / "config.yaml").read_bytes() == (failed.folder / "config.yaml").read_bytes()
    assert json.loads(output(again)) == [
        "train",
        "--config",
        str(again.folder / "config.yaml"),
        "--output",
        str(root / again.run),
        "--force",
    ]


def test_what_follows_a_job_runs_where_it_ran(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = put(root, "import os; print(os.getcwd())", working_folder=elsewhere)
    working.start_worker(root)
    wait_for(lambda: now(first).has_ended)
    again = control.retry(root, now(first))
    wait_for(lambda: now(again).has_ended)
    assert (output(first), output(again)) == (f"{elsewhere}\n", f"{elsewhere}\n")
    stated = json.loads((first.folder / "job.json").read_text())
    (first.folder / "job.json").write_text(json.dumps(stated | {"working_folder": "/"}))
    assert control.retry(root, now(first)).working_folder == str(Path.cwd())


def test_a_forced_run_is_resumed_with_force(root: Path) -> None:
    folder = write_run(root, "my run", status="interrupted", plan={"forced": True})
    (folder / "config.yaml").write_text(yaml.safe_dump({"code": SAYS_ITS_ARGUMENTS}))
    job = control.resume(root, read_run(folder))
    wait_for(lambda: now(job).has_ended)
    assert json.loads(output(job)) == [
        "train",
        "--resume",
        str(root / "my run"),
        "--output",
        str(root / job.run),
        "--force",
    ]
    assert job.run.startswith("my-run-")


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (4, "failed"), (5, "interrupted")])
def test_a_button_pressed_a_moment_too_late_changes_no_verdict(root: Path, code: int, state: str) -> None:
    reader = JobReader(root)
    shown = put(root, "")
    reader.jobs()
    mark_ended(shown, code)
    for act in (control.cancel, control.kill):
        act(shown)
        assert (now(shown).state, reader.jobs()[0].state, jobs(root)[0].state) == (state,) * 3
    shutil.rmtree(shown.folder)
    assert reader.jobs() == []


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (3, "refused"), (4, "failed"), (5, "interrupted")])
def test_the_exit_code_is_the_verdict(root: Path, code: int, state: str) -> None:
    job = put(root, f"raise SystemExit({code})")
    working.start_worker(root)
    wait_for(lambda: now(job).has_ended)
    assert (now(job).exit_code, now(job).state) == (code, state)


def test_cancelling_a_running_job_interrupts_it_politely(root: Path) -> None:
    job = put(root, POLITE)
    working.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    control.cancel(now(job))
    wait_for(lambda: now(job).has_ended)
    assert output(job) == "ready\nsealed\n"
    assert (now(job).exit_code, now(job).state) == (5, "interrupted")


def test_one_that_is_suspended_hears_that_it_is_to_stop(root: Path) -> None:
    job = put(root, POLITE)
    working.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    started = now(job).started
    assert started is not None
    os.kill(started.pid, signal.SIGSTOP)
    control.cancel(now(job))
    wait_for(lambda: now(job).has_ended)
    assert (output(job), now(job).exit_code) == ("ready\nsealed\n", 5)


def test_a_root_without_locks_takes_no_job(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ProblemError) as refused:
        control.start(root, {"name": "a"})
    [problem] = refused.value.problems
    assert problem.code == "TP724"
    assert root.is_relative_to(problem.file)
    assert jobs(root) == []
    with pytest.raises(ProblemError):
        working.start_worker(root)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_ended_from_outside_says_by_which_signal_and_the_next_one_starts(
    root: Path, number: signal.Signals
) -> None:
    job, second = put(root, POLITE), put(root, "")
    working.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    started = now(job).started
    assert started is not None
    os.kill(started.pid, number)
    wait_for(lambda: now(second).has_ended)
    assert (now(job).exit_code, now(job).state) == (-number, "interrupted")
    assert output(job).startswith(f"ready\n{job.run} was killed by signal {number.value} ({number.name})")
    assert not psutil.pid_exists(started.pid), "its worker waited for it, so no zombie stays"


def test_a_job_that_ignores_the_interruption_can_be_killed(root: Path) -> None:
    job = put(root, STUBBORN)
    working.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    control.cancel(now(job))
    wait_for(lambda: "heard" in output(job))
    assert now(job).state == "stopping"
    control.kill(now(job))
    wait_for(lambda: now(job).has_ended)
    assert (now(job).exit_code, now(job).state) == (-signal.SIGKILL, "interrupted")


def test_a_waiting_job_that_is_cancelled_never_starts(root: Path) -> None:
    first, second = put(root, until(root / "go")), put(root, "print('started')")
    working.start_worker(root)
    control.cancel(second)
    (root / "go").touch()
    wait_for(lambda: now(first).has_ended)
    wait_for(lambda: not working.is_worked_on(root))
    assert now(second).state == "cancelled"
    assert output(second) == ""


def test_a_waiting_job_can_be_moved_before_another(root: Path) -> None:
    first, second, third = put(root, ""), put(root, ""), put(root, "")
    control.move_up(root, third)
    assert [job.job_id for job in jobs(root)] == [first.job_id, third.job_id, second.job_id]
    control.move_up(root, jobs(root)[0])
    assert [job.job_id for job in jobs(root)] == [first.job_id, third.job_id, second.job_id]


def test_a_move_that_was_cut_off_in_its_middle_can_be_made_again(root: Path) -> None:
    first, second = put(root, ""), put(root, "")
    (first.folder / "position").write_text(f"{second.position}\n")
    upper, lower = jobs(root)
    control.move_up(root, lower)
    assert [job.job_id for job in jobs(root)] == [lower.job_id, upper.job_id]


def test_a_job_goes_to_the_end_of_the_queue_though_the_clock_was_set_back(root: Path) -> None:
    first, second = put(root, ""), new_job_folder(root, datetime.now(UTC))
    enqueue(second, run="b", working_folder=root, now=datetime(2020, 1, 1, tzinfo=UTC))
    assert [job.job_id for job in jobs(root)] == [first.job_id, second.name]


def test_a_second_worker_leaves_the_queue_to_the_first(root: Path) -> None:
    job = put(root, until(root / "go"))
    working.start_worker(root)
    wait_for(lambda: now(job).state == "running")
    second = subprocess.run([*working.WORKER, str(root)], timeout=20, check=False)
    assert second.returncode == 0
    (root / "go").touch()
    wait_for(lambda: now(job).has_ended)
    assert now(job).exit_code == 0


def test_a_job_outlives_its_worker_and_the_next_worker_waits_for_it(root: Path) -> None:
    first = put(root, until(root / "go") + "print('done', flush=True)")
    worker = subprocess.Popen([*working.WORKER, str(root)], start_new_session=True)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    worker.kill()
    worker.wait()
    second = put(root, "print('mine')")
    working.start_worker(root)
    wait_for(lambda: lock.is_alive(launch_folder(root)))
    assert now(second).state == "waiting"
    (root / "go").touch()
    wait_for(lambda: now(second).has_ended)
    assert output(first) == "ready\ndone\n"
    # Nobody was there to hear the exit code, and the page says so instead of guessing, unless the run states it.
    assert (now(first).exit_code, now(first).state) == (None, "lost")
    write_run(root, first.run)
    assert (now(first).exit_code, now(first).state) == (0, "succeeded")


def test_a_number_that_now_belongs_to_another_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda pid, number: sent.append((pid, number)))
    own = process.started_now(os.getpid())
    recycled = StartedProcess(pid=own.pid, created=own.created - 3600)
    assert not process.is_alive(recycled)
    process.interrupt(recycled)
    process.kill(recycled)
    assert sent == []
    process.interrupt(own)
    assert (own.pid, signal.SIGINT) in sent


def test_a_process_is_the_same_after_the_clock_was_set() -> None:
    mine = process.started_now(os.getpid())
    assert mine.booted is not None
    assert process.is_alive(replace(mine, created=mine.created + 3600, booted=mine.booted + 3600))
    assert not process.is_alive(replace(mine, created=mine.created + 3600))
    assert not process.is_alive(replace(mine, created=mine.created + 3600, booted=None))


def limited(worker: subprocess.Popen[bytes], size: int) -> None:
    """Let no file of a worker grow beyond a size from now on, as where the disk is full."""
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_where_the_disk_is_full_a_job_waits_and_starts_once_there_is_room(root: Path) -> None:
    first, second = put(root, POLITE), put(root, "")
    worker = subprocess.Popen([*working.WORKER, str(root)], start_new_session=True)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    limited(worker, 5)  # Enough for an exit code, and not for the note on a process.
    control.cancel(now(first))
    wait_for(lambda: now(first).has_ended)
    wait_for((second.folder / OUTPUT).exists)  # It was tried.
    wait_for(lambda: not psutil.Process(worker.pid).children())
    assert (now(second).state, output(second), psutil.Process(worker.pid).children()) == ("waiting", "", [])
    limited(worker, resource.RLIM_INFINITY)
    wait_for(lambda: now(second).has_ended)
    assert (now(second).exit_code, worker.wait(20)) == (0, 0)


def test_where_the_disk_is_full_an_exit_code_is_noted_once_there_is_room(root: Path) -> None:
    first, second = put(root, POLITE), put(root, "")
    worker = subprocess.Popen([*working.WORKER, str(root)], start_new_session=True)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    limited(worker, 0)
    control.cancel(now(first))
    wait_for(lambda: not psutil.Process(worker.pid).children())
    limited(worker, resource.RLIM_INFINITY)
    wait_for(lambda: now(second).has_ended)
    assert [now(job).exit_code for job in (first, second)] == [5, 0]
    assert worker.wait(20) == 0


def test_a_queue_that_was_removed_and_begun_anew_is_worked_through_once(root: Path, tmp_path: Path) -> None:
    first = put(root, POLITE)
    worker = subprocess.Popen([*working.WORKER, str(root)], start_new_session=True)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    started = now(first).started
    assert started is not None
    shutil.rmtree(launch_folder(root))
    second = put(root, until(tmp_path / "go"))
    working.start_worker(root)
    wait_for(lambda: "ready" in output(second))
    process.kill(started)
    assert worker.wait(20) == 0
    assert (now(second).state, working.is_worked_on(root), output(second)) == ("running", True, "ready\n")
    assert (launch_folder(root) / LOCK).exists(), "the lock of the second worker is its own"
    (tmp_path / "go").touch()
    wait_for(lambda: now(second).has_ended)
    assert output(second) == "ready\n"


def test_a_job_whose_working_folder_is_gone_says_so(root: Path, tmp_path: Path) -> None:
    folder = new_job_folder(root, datetime.now(UTC))
    enqueue(folder, run="a", working_folder=root / "nothing", now=datetime.now(UTC))
    working.start_worker(root)
    job = read_job(folder)
    assert job is not None
    wait_for(lambda: now(job).has_ended)
    assert now(job).state == "failed"
    assert output(job) == (f"The run could not be started: [Errno 2] No such file or directory: '{root / 'nothing'}'\n")


def test_starting_writes_the_configuration_and_a_command_without_a_shell(root: Path) -> None:
    hostile = "demo; touch pwned $(touch pwned)"
    job = control.start(root, {"name": "x", "model": {"name": hostile}, "code": SAYS_ITS_ARGUMENTS})
    wait_for(lambda: now(job).has_ended)
    assert json.loads(output(job)) == [
        "train",
        "--config",
        str(job.folder / "config.yaml"),
        "--output",
        str(root / job.run),
    ]
    assert yaml.safe_load((job.folder / "config.yaml").read_text("utf-8"))["model"] == {"name": hostile}
    assert not list(root.glob("**/pwned"))


@pytest.mark.parametrize("name", ["1e-3", "0o17", "0b1", "on", "12:30", "~", "1_000"])
def test_a_name_that_looks_like_a_number_is_queued_as_it_is(root: Path, name: str) -> None:
    job = control.start(root, {"name": name, "code": ""})
    control.cancel(job)
    assert read_yaml((job.folder / "config.yaml").read_text(), file="config.yaml").value == {"name": name, "code": ""}
    assert job.run.startswith(re.sub("[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "run")


def planted(root: Path, text: str, folder: str = "job-x", **files: str) -> Path:
    """Write what came with a root of somebody else."""
    place = launch_folder(root) / folder
    place.mkdir(parents=True)
    (place / "job.json").write_text(text)
    for name, content in files.items():
        (place / name).write_text(content)
    return place


@pytest.mark.parametrize(
    "text",
    [
        '{"run": ',
        "[]",
        "null",
        "[" * 100_000,
        '{"run": "../../elsewhere"}',
        '{"run": ["x"]}',
        '{"run": "x", "resumes": "../../elsewhere"}',
        '{"run": "x", "resumes": "/etc"}',
        '{"run": "x", "resumes": ".."}',
        '{"run": "x", "resumes": ["a"]}',
        '{"run": "x", "resumes": ""}',
        '{"run": "x", "resumes": ".launch"}',
        '{"run": "x", "resumes": "a/b"}',
        f'{{"run": {"[" * 900}{"]" * 900}}}',
    ],
)
def test_what_is_no_job_is_passed_over(root: Path, text: str) -> None:
    job = put(root, "")
    (launch_folder(root) / "empty").mkdir()
    (launch_folder(root) / "link").symlink_to("/")
    planted(root, text)
    assert [found.job_id for found in jobs(root)] == [job.job_id]


@pytest.mark.parametrize("pid", ["-1", "0", "true", "1e3", '"1"', "9" * 400])
@pytest.mark.parametrize("created", ["1", "-1", "NaN", "1e999", "9" * 400])
def test_a_process_that_cannot_be_is_none(root: Path, pid: str, created: str) -> None:
    process_file = f'{{"job": {{"pid": {pid}, "created": {created}}}}}'
    read = read_job(planted(root, '{"run": "x"}', **{PROCESS: process_file, "exit_code": "9" * 5000, "position": "x"}))
    assert read is not None
    assert (read.started, read.exit_code, read.position) == (None, None, 0)


@pytest.mark.parametrize("odd", ["null", "7", "{}", f"{'[' * 900}{']' * 900}", '"\\ud800"'])
def test_a_job_with_odd_values_is_read_and_not_started(root: Path, odd: str) -> None:
    keys = ("force", "working_folder", "device", "created_at", "seal", "command")
    text = ", ".join(f'"{key}": {odd}' for key in keys)
    read = read_job(planted(root, f'{{"run": "x", {text}}}'))
    assert read is not None
    assert (read.state, read.force, read.device) == ("unasked", False, "auto")


def test_a_root_of_somebody_else_starts_nothing(root: Path) -> None:
    pwned = root / "pwned"
    touch = ["touch", str(pwned)]
    code = f"open({str(pwned)!r}, 'w')"
    mine = put(root, "print('mine')")
    # What another user queued: a folder as it should be, but for the seal.
    theirs = put(root, code)
    shutil.copytree(theirs.folder, launch_folder(root) / "job-copied")
    statement = json.loads((theirs.folder / "job.json").read_text())
    (theirs.folder / "job.json").write_text(json.dumps(statement | {"seal": "0" * 64}))
    planted(root, json.dumps({"run": "y", "command": touch, "working_folder": "/"}), "job-old", position="1")
    planted(root, json.dumps({"run": "y", "command": None}), "job-none")
    planted(root, json.dumps({"run": "y", "command": []}), "job-empty")
    planted(root, json.dumps({"run": "y", "seal": None}), "job-unsealed", **{"config.yaml": f"code: {code}"})
    changed = put(root, "print('mine')")
    (changed.folder / "config.yaml").write_text(yaml.safe_dump({"code": code}))
    working.start_worker(root)
    wait_for(lambda: now(mine).has_ended)
    wait_for(lambda: not working.is_worked_on(root))
    assert output(mine) == "mine\n"
    assert {job.state for job in jobs(root) if job.job_id != mine.job_id} == {"unasked"}
    assert len(jobs(root)) == 8
    assert not pwned.exists()


def test_no_link_among_the_jobs_is_followed(root: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("a line of somebody's\n")
    place = planted(root, '{"run": "x"}')
    for link in (place / OUTPUT, place / "config.yaml", launch_folder(root) / "worker.log"):
        link.symlink_to(private)
    job = read_job(place)
    assert job is not None
    assert tail(place / OUTPUT) == ""
    for act in (lambda: control.retry(root, job), lambda: working.start_worker(root)):
        with pytest.raises(OSError, match="It is a link, which is not followed: "):
            act()
    assert private.read_text() == "a line of somebody's\n"
    (place / "config.yaml").unlink()
    (place / "config.yaml").symlink_to("/dev/zero")  # Reading it has no end.
    (place / "position").symlink_to("/dev/zero")
    assert [job.position for job in jobs(root)] == [0]
    (place / "job.json").unlink()
    (place / "job.json").symlink_to("/dev/zero")
    assert jobs(root) == []


def test_the_secret_is_for_this_user_alone_and_an_empty_one_is_none(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert put(root, "").state == "waiting"
    path = hashes.secret_path()
    assert path == tmp_path / "data" / "trainproof" / "seal.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [job.state for job in jobs(root)] == ["waiting"]
    path.write_bytes(b"")
    assert [job.state for job in jobs(root)] == ["unasked"]
    assert put(root, "").state == "waiting"


def test_no_program_of_the_folder_in_which_the_dashboard_was_started_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "clone"
    for name in ("trainproof/__main__.py", "launch/__init__.py", "launch/worker.py", "yaml.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    monkeypatch.chdir(here)
    job = control.start(tmp_path / "runs", {"name": "x y"})
    wait_for(lambda: now(job).has_ended)
    assert (now(job).state, job.working_folder) == ("failed", str(here))
    assert "at name" in output(job)
    assert not (tmp_path / "pwned").exists()
