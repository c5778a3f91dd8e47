"""The queue and its worker, with real processes instead of training."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml
from stand_ins import now, output, put, wait_for
from synthetic import write_run

from evidence import lock
from evidence.layout import LOCK
from evidence.lock import RunLock
from evidence.run import read_run
from launch import process, queue, worker
from launch.jobs import OUTPUT, Job, JobReader, enqueue, jobs, launch_folder, mark_ended
from launch.worker import startable
from schemas.problems import ProblemError
from schemas.reading import read_yaml

INTERRUPTIBLE = """
import sys, time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("saved", flush=True)
    sys.exit(5)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGINT, lambda *_: print('ignored', flush=True)); "
    "print('ready', flush=True); time.sleep(60); time.sleep(60)"
)
PRINT_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"


def until(file: Path) -> str:
    """Return code that prints `ready` and ends when a file exists."""
    wait = f"while not pathlib.Path({str(file)!r}).exists(): time.sleep(0.01)"
    return f"import pathlib, time; print('ready', flush=True)\n{wait}\n"


def started(root: Path, code: str, **request: object) -> Job:
    """Queue a program that prints `ready`, and start a worker."""
    job = put(root, code, **request)
    queue.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    return job


def finish(root: Path, *queued: Job) -> None:
    """Start a worker and wait until it has run these jobs."""
    queue.start_worker(root)
    wait_for(lambda: all(now(job).has_ended for job in queued))


def own_worker(root: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*queue.WORKER, str(root)], start_new_session=True)


def pid(job: Job) -> int:
    found = now(job).started
    assert found is not None
    return found.pid


def test_jobs_run_one_at_a_time_in_order_and_leave_their_output_and_exit_code(root: Path) -> None:
    alone = root / "alone"
    code = f"import pathlib; p = pathlib.Path({str(alone)!r}); p.touch(exist_ok=False); print('alone'); p.unlink()"
    queued = [put(root, code) for _ in range(3)]
    assert [job.state for job in jobs(root)] == ["waiting"] * 3
    finish(root, *queued)
    assert [(now(job).exit_code, output(job)) for job in queued] == [(0, "alone\n")] * 3
    times = [found.created for job in queued if (found := now(job).started)]
    assert times == sorted(times)
    wait_for(lambda: not queue.has_worker(root))


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (3, "refused"), (4, "failed"), (5, "interrupted")])
def test_the_exit_code_decides_the_state_and_a_late_click_does_not_change_it(root: Path, code: int, state: str) -> None:
    reader = JobReader(root)
    shown = put(root, "")
    reader.jobs()
    mark_ended(shown.folder, code)
    for action in (queue.cancel, queue.kill):
        action(shown)
        assert (now(shown).state, reader.jobs()[0].state, jobs(root)[0].state) == (state,) * 3
    shutil.rmtree(shown.folder)
    assert reader.jobs() == []


def test_each_device_runs_one_job_at_a_time_beside_the_others(root: Path) -> None:
    devices = {"cpu": INTERRUPTIBLE, "gpu": ""}
    first, third = (put(root, code, device=device) for device, code in devices.items())
    second, last = put(root, "", device="cpu"), put(root, "")
    finish(root, third)
    wait_for(lambda: "ready" in output(first))
    assert [now(job).state for job in (first, second, last)] == ["running", "waiting", "waiting"]
    queue.cancel(now(first))
    wait_for(lambda: now(last).has_ended)
    assert [now(job).exit_code for job in (first, second, third, last)] == [5, 0, 0, 0]


def test_a_job_for_any_device_is_not_overtaken_forever(root: Path) -> None:
    put(root, "", device="cpu")
    any_device, gpu = put(root, ""), put(root, "", device="gpu")
    assert [job.device for job in startable(jobs(root))] == ["cpu"]
    queue.move_up(root, gpu)
    assert [job.device for job in startable(jobs(root))] == ["cpu", "gpu"]
    assert any_device.shares_device(gpu)


def test_a_place_with_its_own_queue_takes_all_jobs_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"cluster": SimpleNamespace(has_own_queue=True), "other": SimpleNamespace(has_own_queue=False)}
    monkeypatch.setattr(worker, "find_place", places.get)
    for place in ("local", "cluster", "local", "cluster", "other", "other"):
        put(root, "", place=place)
    assert [job.place for job in startable(jobs(root))] == ["local", "cluster", "cluster", "other"]


def test_an_unknown_place_is_refused(root: Path) -> None:
    with pytest.raises(ProblemError) as raised:
        queue.start(root, {"name": "here"}, place="moon")
    [problem] = raised.value.problems
    assert (problem.code, problem.what, raised.value.exit_code) == ("TP768", "The place moon is unknown.", 2)
    assert jobs(root) == []


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"place": "moon"}, "The place moon is unknown."),
        ({"working_folder": Path("/gone")}, "[Errno 2] No such file or directory: '/gone'"),
    ],
)
def test_a_job_that_cannot_be_started_fails_with_a_reason(root: Path, request_: dict, reason: str) -> None:
    job = put(root, "", **request_)
    finish(root, job)
    assert (now(job).state, output(job)) == ("failed", f"The run could not be started: {reason}\n")


def test_starting_writes_the_configuration_and_uses_no_shell(root: Path) -> None:
    hostile = "demo; touch pwned $(touch pwned)"
    job = queue.start(root, {"name": "x", "model": {"name": hostile}, "code": PRINT_ARGUMENTS})
    wait_for(lambda: now(job).has_ended)
    config = job.folder / "config.yaml"
    assert json.loads(output(job)) == ["train", "--config", str(config), "--output", str(root / job.run)]
    assert yaml.safe_load(config.read_text("utf-8"))["model"] == {"name": hostile}
    assert not list(root.glob("**/pwned"))


@pytest.mark.parametrize("name", ["1e-3", "0o17", "0b1", "on", "12:30", "~", "1_000"])
def test_a_name_that_looks_like_a_number_stays_a_name(root: Path, name: str) -> None:
    job = queue.start(root, {"name": name, "code": ""})
    queue.cancel(job)
    assert read_yaml((job.folder / "config.yaml").read_text(), file="config.yaml").value == {"name": name, "code": ""}
    assert job.run.startswith(re.sub("[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "run")


def test_retry_queues_the_same_as_a_new_run_in_the_same_folder_and_place(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = f"import os; print(os.getcwd())\n{PRINT_ARGUMENTS}; sys.exit(4)"
    failed = put(root, code, device="cpu", force=True, working_folder=elsewhere)
    finish(root, failed)
    again = queue.retry(root, now(failed))
    wait_for(lambda: now(again).has_ended)
    assert (now(failed).state, again.device, again.run != failed.run) == ("failed", "cpu", True)
    config = again.folder / "config.yaml"
    assert config.read_bytes() == (failed.folder / "config.yaml").read_bytes()
    folder, arguments = output(again).splitlines()
    assert folder == str(elsewhere)
    assert json.loads(arguments) == ["train", "--config", str(config), "--output", str(root / again.run), "--force"]
    assert queue.retry(root, put(root, "", place="cluster")).place == "cluster"


def test_a_forced_run_is_resumed_with_force(root: Path) -> None:
    folder = write_run(root, "my run", status="interrupted", plan={"forced": True})
    (folder / "config.yaml").write_text(yaml.safe_dump({"code": PRINT_ARGUMENTS}))
    job = queue.resume(root, read_run(folder))
    wait_for(lambda: now(job).has_ended)
    expected = ["train", "--resume", str(root / "my run"), "--output", str(root / job.run), "--force"]
    assert json.loads(output(job)) == expected
    assert job.run.startswith("my-run-")


@pytest.mark.parametrize("status", ["interrupted", "cancelled", "failed", "succeeded", "running"])
def test_a_stopped_run_with_configuration_and_checkpoint_can_be_resumed(tmp_path: Path, status: str) -> None:
    folder = write_run(tmp_path, "a", status=status)
    (folder / "checkpoints" / "20.orbax-checkpoint-tmp-1").mkdir(parents=True)
    assert not queue.can_resume(read_run(folder)), "an incomplete checkpoint does not count"
    (folder / "checkpoints" / "20").mkdir()
    assert queue.can_resume(read_run(folder)) is (status != "succeeded")
    with RunLock(folder) if status == "running" else nullcontext():
        assert queue.can_resume(read_run(folder)) is (status not in ("succeeded", "running"))
    (folder / "config.yaml").unlink()
    assert not queue.can_resume(read_run(folder))


@pytest.mark.parametrize("is_suspended", [False, True])
def test_cancel_interrupts_a_running_job(root: Path, is_suspended: bool) -> None:
    job = started(root, INTERRUPTIBLE)
    if is_suspended:
        os.kill(pid(job), signal.SIGSTOP)
    queue.cancel(now(job))
    wait_for(lambda: now(job).has_ended)
    assert output(job) == "ready\nsaved\n"
    assert (now(job).exit_code, now(job).state) == (5, "interrupted")


def test_a_job_that_ignores_the_interrupt_can_be_killed(root: Path) -> None:
    job = started(root, STUBBORN)
    queue.cancel(now(job))
    wait_for(lambda: "ignored" in output(job))
    assert now(job).state == "stopping"
    queue.kill(now(job))
    wait_for(lambda: now(job).has_ended)
    assert (now(job).exit_code, now(job).state) == (-signal.SIGKILL, "interrupted")


def test_kill_reaches_children_with_their_own_session(root: Path) -> None:
    child = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, 'ready')"
    job = started(root, f"{child}; sys.stdout.flush(); import time; time.sleep(60)")
    sleeper = psutil.Process(int(output(job).split()[0]))
    queue.kill(now(job))
    wait_for(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_killed_from_outside_reports_the_signal_and_the_next_one_starts(
    root: Path, number: signal.Signals
) -> None:
    job, second = started(root, INTERRUPTIBLE), put(root, "")
    killed = pid(job)
    os.kill(killed, number)
    wait_for(lambda: now(second).has_ended)
    assert (now(job).exit_code, now(job).state) == (-number, "interrupted")
    command = f"trainproof train --resume {root / job.run} --output NEW_FOLDER --set memory.remat=layer"
    reason = f", probably because the machine ran out of memory (see `dmesg`). To resume it with less memory: {command}"
    ended = f"{job.run} was killed by signal {number.value} ({number.name})"
    assert output(job) == f"ready\n{ended}{reason if number == signal.SIGKILL else '.'}\n"
    assert not psutil.pid_exists(killed), "it is not a zombie, because the worker waited for it"


def test_a_cancelled_waiting_job_never_starts(root: Path) -> None:
    first, second = put(root, until(root / "go")), put(root, "print('started')")
    queue.start_worker(root)
    queue.cancel(second)
    (root / "go").touch()
    wait_for(lambda: now(first).has_ended)
    wait_for(lambda: not queue.has_worker(root))
    assert (now(second).state, output(second)) == ("cancelled", "")


def test_a_waiting_job_can_be_moved_up(root: Path) -> None:
    first, second, third = (put(root, "") for _ in range(3))

    def move_up(job: Job) -> list[str]:
        queue.move_up(root, job)
        return [job.job_id for job in jobs(root)]

    moved = [first.job_id, third.job_id, second.job_id]
    assert move_up(third) == moved
    assert move_up(first) == moved
    # A move that was cut off, with two jobs at one position, can be repeated.
    (third.folder / "position").write_text((first.folder / "position").read_text())
    upper, lower, _ = jobs(root)
    assert move_up(lower)[:2] == [lower.job_id, upper.job_id]


def test_a_job_goes_to_the_end_of_the_queue_after_the_clock_was_set_back(root: Path) -> None:
    first = put(root, "")
    second = enqueue(root, run="b", working_folder=root, now=datetime(2020, 1, 1, tzinfo=UTC))
    assert [job.job_id for job in jobs(root)] == [first.job_id, second.job_id]


def test_a_second_worker_leaves_the_queue_to_the_first(root: Path) -> None:
    job = started(root, until(root / "go"))
    second = subprocess.run([*queue.WORKER, str(root)], timeout=20, check=False)
    assert second.returncode == 0
    (root / "go").touch()
    wait_for(lambda: now(job).has_ended)
    assert now(job).exit_code == 0


def test_a_job_outlives_its_worker_and_the_next_worker_waits_for_it(root: Path) -> None:
    first = put(root, until(root / "go") + "print('done', flush=True)")
    old_worker = own_worker(root)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    old_worker.kill()
    old_worker.wait()
    second = put(root, "print('mine')")
    queue.start_worker(root)
    wait_for(lambda: lock.is_alive(launch_folder(root)))
    assert now(second).state == "waiting"
    (root / "go").touch()
    wait_for(lambda: now(second).has_ended)
    assert output(first) == "ready\ndone\n"
    # Nobody recorded the exit code. The job is lost, unless its run contains the code.
    assert (now(first).exit_code, now(first).state) == (None, "lost")
    write_run(root, first.run)
    assert (now(first).exit_code, now(first).state) == (0, "succeeded")


def test_a_file_system_without_locks_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for action in (lambda: queue.start(root, {"name": "a"}), lambda: queue.start_worker(root)):
        with pytest.raises(ProblemError) as refused:
            action()
        [problem] = refused.value.problems
        assert problem.code == "TP724"
        assert launch_folder(root).is_relative_to(problem.file)
    assert jobs(root) == []


def limit_files(started_worker: subprocess.Popen[bytes], size: int) -> None:
    """Limit the size of the files that a worker writes, like a full disk."""
    resource.prlimit(started_worker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize("size", [0, 5])  # 5 bytes are enough for an exit code, but not for process.json
def test_a_full_disk_delays_the_queue_until_there_is_space(root: Path, size: int) -> None:
    first, second = put(root, INTERRUPTIBLE), put(root, "")
    full_worker = own_worker(root)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    limit_files(full_worker, size)
    queue.cancel(now(first))
    if size:
        wait_for(lambda: now(first).has_ended)
        wait_for((second.folder / OUTPUT).exists)  # the worker tried to start it
    wait_for(lambda: not psutil.Process(full_worker.pid).children())
    assert (now(second).state, output(second)) == ("waiting", "")
    limit_files(full_worker, resource.RLIM_INFINITY)
    wait_for(lambda: now(second).has_ended)
    assert [now(first).exit_code, now(second).exit_code, full_worker.wait(20)] == [5, 0, 0]


def test_a_removed_and_recreated_queue_is_processed_once(root: Path, tmp_path: Path) -> None:
    first = put(root, INTERRUPTIBLE)
    old_worker = own_worker(root)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    running = now(first).started
    assert running is not None
    shutil.rmtree(launch_folder(root))
    second = started(root, until(tmp_path / "go"))
    process.kill(running)
    assert old_worker.wait(20) == 0
    assert (now(second).state, queue.has_worker(root), output(second)) == ("running", True, "ready\n")
    assert (launch_folder(root) / LOCK).exists(), "the lock belongs to the second worker"
    (tmp_path / "go").touch()
    wait_for(lambda: now(second).has_ended)
    assert output(second) == "ready\n"


Posted = tuple[str, list[tuple[str, dict[str, object]]]]


@pytest.fixture
def posted() -> Iterator[Posted]:
    """Yield the address of a local server, and what was posted to it. `/500` and `/301` return these codes."""
    found: list[tuple[str, dict[str, object]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            found.append((self.path, json.loads(content)))
            self.send_response(int(self.path[1:]) if self.path[1:].isdigit() else 204)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", found
        server.shutdown()


def test_the_end_of_a_job_is_posted_to_the_webhook(root: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch) -> None:
    address, found = posted
    monkeypatch.setenv("TRAINPROOF_WEBHOOK", f"{address}/hook?key=secret")
    job = put(root, "import sys; sys.exit(4)")
    queue.start_worker(root)
    wait_for(lambda: bool(found))
    line = f"{job.run}: failed, exit code 4"
    body = {"text": line, "content": line, "run": job.run, "state": "failed", "exit_code": 4}
    assert (found, output(job)) == ([("/hook?key=secret", body)], "")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("{server}/500", "HTTP Error 500: Internal Server Error"),
        ("{server}/301", "HTTP Error 301: Moved Permanently"),
        ("http://127.0.0.1:9/hook?key=secret", "<urlopen error [Errno 111] Connection refused>"),
        ("ftp://host/secret", "TRAINPROOF_WEBHOOK is not a valid http or https address."),
        ("http://[secret", "TRAINPROOF_WEBHOOK is not a valid http or https address."),
        ("http://host:secret/", "TRAINPROOF_WEBHOOK is not a valid http or https address."),
    ],
)
def test_a_failed_post_is_reported_without_the_address_and_the_queue_continues(
    root: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch, address: str, reason: str
) -> None:
    monkeypatch.setenv("TRAINPROOF_WEBHOOK", address.format(server=posted[0]))
    first, second = put(root, "pass"), put(root, "pass")
    queue.start_worker(root)
    line = f"The end could not be posted: {reason}\n"
    wait_for(lambda: [output(first), output(second)] == [line, line])
    assert [now(first).state, now(second).state] == ["succeeded", "succeeded"]


def test_a_job_waits_for_others_and_is_cancelled_if_one_that_it_needs_fails(root: Path, tmp_path: Path) -> None:
    first, code = put(root, "raise SystemExit(4)", run="parent"), "print('trained')"
    child = put(root, code, run="child", after={first.job_id: True})
    grandchild = put(root, code, run="grandchild", after={child.job_id: True})
    behind = put(root, code, run="behind", after={first.job_id: False})
    assert [job.run for job in startable(jobs(root))] == ["parent"]
    finish(root, first, child, grandchild, behind)
    assert [now(job).state for job in (first, child, grandchild, behind)] == [
        *("failed", "cancelled", "cancelled", "succeeded")
    ]
    assert output(child).startswith("Not started: it needs parent, which ended as failed.")
    assert output(grandchild).startswith("Not started: it needs child, which ended as cancelled.")


def test_a_waiting_job_does_not_hold_its_device(root: Path) -> None:
    held = put(root, "", run="held", device="gpu", place="elsewhere")
    child, other = put(root, "", run="child", device="cpu", after={held.job_id: True}), put(root, "", device="cpu")
    assert [job.job_id for job in startable(jobs(root)) if job.place == "local"] == [other.job_id]
    shutil.rmtree(held.folder)
    finish(root, other, child)
    assert "no longer in the queue" in output(child)
