"""Jobs are real processes here: a queue that only works on paper is worth nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from dashboard.logic.jobs import control, process
from dashboard.logic.jobs.folder import OUTPUT, Job, enqueue, jobs, launch_folder, new_job_folder, read_job
from dashboard.logic.jobs.process import Started
from dashboard.logic.jobs.worker import startable

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
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def put(root: Path, code: str, run: str = "a-run", device: str = "auto") -> Job:
    """Queue a Python program instead of a training run."""
    now = datetime.now(UTC)
    folder = new_job_folder(root, now)
    command = [sys.executable, "-c", code]
    enqueue(folder, run=run, command=command, working_folder=root, now=now, device=device)
    job = read_job(folder)
    assert job is not None
    return job


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)


def now(job: Job) -> Job:
    again = read_job(job.folder)
    assert again is not None
    return again


def output(job: Job) -> str:
    path = job.folder / OUTPUT
    return path.read_text("utf-8") if path.exists() else ""


@pytest.fixture
def root(tmp_path: Path):
    yield tmp_path
    for job in jobs(tmp_path):
        control.kill(job)
    wait_for(lambda: not control.is_worked_on(tmp_path))


def test_jobs_run_one_at_a_time_in_order_and_leave_their_output_and_exit_code(root: Path) -> None:
    code = "import time; print(time.monotonic()); time.sleep(0.3); print(time.monotonic())"
    queued = [put(root, code) for _ in range(3)]
    assert [job.state for job in jobs(root)] == ["waiting"] * 3
    control.start_worker(root)
    wait_for(lambda: all(job.has_ended for job in jobs(root)))
    times = [[float(line) for line in output(job).split()] for job in queued]
    assert [now(job).exit_code for job in queued] == [0, 0, 0]
    assert times[0][1] <= times[1][0]
    assert times[1][1] <= times[2][0]
    wait_for(lambda: not control.is_worked_on(root))


def test_each_device_runs_one_job_at_a_time_beside_the_others(root: Path) -> None:
    first, second, third = put(root, POLITE, device="cpu"), put(root, "", device="cpu"), put(root, "", device="gpu")
    last = put(root, "")
    control.start_worker(root)
    wait_for(lambda: now(third).has_ended)
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


def test_a_failed_job_is_tried_again_as_a_run_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PROGRAM", (sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(4)"))
    failed = control.start(root, {"name": "x", "mesh": {"device": "cpu"}}, force=True)
    wait_for(lambda: now(failed).has_ended)
    again = control.retry(root, now(failed))
    wait_for(lambda: now(again).has_ended)
    assert (now(failed).state, again.device) == ("failed", "cpu")
    assert again.run != failed.run
    assert (again.folder / "config.yaml").read_text("utf-8") == "name: x\nmesh:\n  device: cpu\n"
    assert json.loads(output(again).replace("'", '"')) == [
        "train",
        "--config",
        str(again.folder / "config.yaml"),
        "--output",
        str(root / again.run),
        "--force",
    ]


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (3, "refused"), (4, "failed"), (5, "interrupted")])
def test_the_exit_code_is_the_verdict(root: Path, code: int, state: str) -> None:
    job = put(root, f"raise SystemExit({code})")
    control.start_worker(root)
    wait_for(lambda: now(job).has_ended)
    assert (now(job).exit_code, now(job).state) == (code, state)


def test_cancelling_a_running_job_interrupts_it_politely(root: Path) -> None:
    job = put(root, POLITE)
    control.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    control.cancel(now(job))
    wait_for(lambda: now(job).has_ended)
    assert output(job) == "ready\nsealed\n"
    assert (now(job).exit_code, now(job).state) == (5, "cancelled")


def test_a_job_that_ignores_the_interruption_can_be_killed(root: Path) -> None:
    job = put(root, STUBBORN)
    control.start_worker(root)
    wait_for(lambda: "ready" in output(job))
    control.cancel(now(job))
    time.sleep(0.3)
    assert now(job).state == "stopping"
    control.kill(now(job))
    wait_for(lambda: now(job).has_ended)
    assert (now(job).exit_code, now(job).state) == (-signal.SIGKILL, "cancelled")


def test_a_waiting_job_that_is_cancelled_never_starts(root: Path) -> None:
    first, second = put(root, "import time; time.sleep(0.5)"), put(root, "print('started')")
    control.start_worker(root)
    control.cancel(second)
    wait_for(lambda: now(first).has_ended)
    wait_for(lambda: not control.is_worked_on(root))
    assert now(second).state == "cancelled"
    assert output(second) == ""


def test_a_waiting_job_can_be_moved_before_another(root: Path) -> None:
    first, second, third = put(root, ""), put(root, ""), put(root, "")
    control.move_up(root, third)
    assert [job.job_id for job in jobs(root)] == [first.job_id, third.job_id, second.job_id]
    control.move_up(root, jobs(root)[0])
    assert [job.job_id for job in jobs(root)] == [first.job_id, third.job_id, second.job_id]


def test_a_second_worker_leaves_the_queue_to_the_first(root: Path) -> None:
    job = put(root, "import time; time.sleep(1.5)")
    control.start_worker(root)
    wait_for(lambda: now(job).state == "running")
    second = subprocess.run([sys.executable, "-m", "dashboard.logic.jobs.worker", str(root)], timeout=20, check=False)
    assert second.returncode == 0
    wait_for(lambda: now(job).has_ended)
    assert now(job).exit_code == 0


def test_a_job_outlives_its_worker_and_the_next_worker_waits_for_it(root: Path) -> None:
    first = put(root, "import time; print('ready', flush=True); time.sleep(1.5); print('done', flush=True)")
    worker = subprocess.Popen([sys.executable, "-m", "dashboard.logic.jobs.worker", str(root)], start_new_session=True)
    wait_for(lambda: now(first).state == "running" and "ready" in output(first))
    worker.kill()
    worker.wait()
    second = put(root, "print('mine')")
    control.start_worker(root)
    wait_for(lambda: now(second).has_ended)
    assert output(first) == "ready\ndone\n"
    # Nobody was there to hear the exit code, and the page says so instead of guessing.
    assert (now(first).exit_code, now(first).state) == (None, "lost")


def test_a_number_that_now_belongs_to_another_process_is_left_alone() -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        recycled = Started(pid=bystander.pid, created=psutil.Process(bystander.pid).create_time() - 3600)
        assert not process.is_alive(recycled)
        process.interrupt(recycled)
        process.kill(recycled)
        time.sleep(0.2)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_command_that_cannot_be_started_says_so(root: Path) -> None:
    now_ = datetime.now(UTC)
    folder = new_job_folder(root, now_)
    enqueue(folder, run="a", command=[str(root / "nothing")], working_folder=root, now=now_)
    control.start_worker(root)
    job = read_job(folder)
    assert job is not None
    wait_for(lambda: now(job).has_ended)
    assert now(job).state == "failed"
    assert output(job) == (f"The run could not be started: [Errno 2] No such file or directory: '{root / 'nothing'}'\n")


def test_starting_writes_the_configuration_and_a_command_without_a_shell(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "PROGRAM", (sys.executable, "-c", "import sys; print(sys.argv[1:])"))
    hostile = "demo; touch pwned $(touch pwned)"
    job = control.start(root, {"name": "x", "model": {"name": hostile}})
    wait_for(lambda: now(job).has_ended)
    assert json.loads(output(job).replace("'", '"')) == [
        "train",
        "--config",
        str(job.folder / "config.yaml"),
        "--output",
        str(root / job.run),
    ]
    assert (job.folder / "config.yaml").read_text("utf-8") == f"name: x\nmodel:\n  name: {hostile}\n"
    assert not list(root.glob("**/pwned"))


def test_folders_that_are_no_jobs_are_passed_over(root: Path) -> None:
    job = put(root, "")
    (launch_folder(root) / "empty").mkdir()
    (launch_folder(root) / "torn").mkdir()
    (launch_folder(root) / "torn" / "job.json").write_text('{"run": ')
    (launch_folder(root) / "outside").mkdir()
    (launch_folder(root) / "outside" / "job.json").write_text('{"run": "../../elsewhere", "command": ["x"]}')
    (launch_folder(root) / "link").symlink_to("/")
    assert [found.job_id for found in jobs(root)] == [job.job_id]
