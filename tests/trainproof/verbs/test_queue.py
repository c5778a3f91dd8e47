"""The verb `queue`, as somebody types it, with stand-ins for what the jobs would run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from stand_ins import put, stand_in, wait_for
from synthetic import write_run

from launch import queue
from launch.jobs import working
from launch.jobs.folder import OUTPUT, Job, jobs, read_job
from launch.jobs.output import tail
from schemas.reading import read_yaml
from trainproof.cli import app as command

REPOSITORY = Path(__file__).parents[3]
CONFIG = REPOSITORY / "trainer" / "configs" / "tiny.yaml"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch)
    yield tmp_path / "runs"
    for job in jobs(tmp_path / "runs"):
        queue.kill(job)
    wait_for(lambda: not working.is_worked_on(tmp_path / "runs"))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], root: Path):
    def said(*arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            command.main(["queue", *map(str, arguments), "--root", str(root)])
        out, errors = capsys.readouterr()
        assert (ended.value.code, errors == "") == (code, code == 0), errors
        return out or errors

    return said


def now(job: Job) -> Job:
    again = read_job(job.folder)
    assert again is not None
    return again


def test_a_run_is_added_listed_and_tried_again(root: Path, said) -> None:
    added = said("add", "--config", CONFIG, "--set", 'name="1e-3"', "--set", "mesh.device=cpu")
    (job,) = jobs(root)
    assert added == f"{job.run} is queued as {job.job_id}.\n"
    assert read_yaml((job.folder / "config.yaml").read_text(), file="config.yaml").value["name"] == "1e-3"
    wait_for(lambda: now(job).has_ended)
    listed = json.loads(said("list", "--json"))
    assert [(one["job"], one["run"], one["device"], one["state"]) for one in listed] == [
        (job.job_id, job.run, "cpu", "failed")  # A real configuration holds no stand-in's code.
    ]
    assert "KeyError: 'code'" in said("logs", job.run)
    said("retry", job.job_id)
    again = jobs(root)[-1]
    assert (again.job_id != job.job_id, again.device) == (True, "cpu")
    heads, *rows = said("list").splitlines()
    assert heads.split() == ["job", "state", "device", "exit", "code", "added", "at", "run"]
    assert [row.split()[0] for row in rows] == [job.job_id, again.job_id]


def test_a_configuration_that_cannot_be_used_is_not_queued(root: Path, said) -> None:
    assert "error TP" in said("add", "--config", CONFIG, "--set", "limits.steps=none", code=2)
    assert jobs(root) == []


def test_a_job_is_cancelled_and_the_queue_goes_on(root: Path, said) -> None:
    first, second = put(root, "print('first')", run="first"), put(root, "print('second')", run="second")
    said("cancel", first.job_id)
    assert now(first).state == "cancelled"
    said("continue")
    wait_for(lambda: now(second).has_ended)
    assert said("logs", "second", "--lines", 1) == "second\n"
    assert said("logs", "first") == ""


def test_a_running_job_is_killed(root: Path, said) -> None:
    job = put(root, "import signal; print('ready', flush=True); signal.pause()")
    working.start_worker(root)
    wait_for(lambda: tail(job.folder / OUTPUT) == "ready")
    said("cancel", job.job_id, "--now")
    wait_for(lambda: now(job).has_ended)
    assert now(job).exit_code == -9
    text = f"{job.run} was killed by signal 9 (SIGKILL), as the queue was told to.\n"
    assert said("logs", job.job_id) == f"ready\n{text}"
    assert said("list").endswith(text)


def test_a_job_that_the_system_killed_is_named_with_its_memory_and_a_way_on(root: Path, said) -> None:
    job = put(root, "import signal; print('ready', flush=True); signal.pause()", run="killed")
    working.start_worker(root)
    wait_for(lambda: tail(job.folder / OUTPUT) == "ready")
    folder = root / job.run
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text("batch: {microbatch_size: 6, accumulation_steps: 1}\n")
    memory = {"process_memory_bytes": 21 * 2**30, "host_memory_used_bytes": 23 * 2**30, "host_memory_bytes": 24 * 2**30}
    (folder / "system.jsonl").write_text(json.dumps(memory) + '\n{"time": "2026-')
    os.killpg(now(job).started.pid, signal.SIGKILL)
    wait_for(lambda: now(job).has_ended)
    fewer = "--set batch.microbatch_size=3 --set batch.accumulation_steps=2"
    text = (
        f"{job.run} was killed by signal 9 (SIGKILL), usually by the kernel for want of memory: see `dmesg`. "
        "system.jsonl said last: 21.00 GiB of the run, 23.00 GiB of 24.00 GiB on the machine. "
        f"Next: trainproof train --resume {folder} --output NEW_FOLDER {fewer}\n"
    )
    assert said("logs", job.job_id) == f"ready\n{text}"
    assert said("list").endswith(text)


def test_a_stopped_run_is_resumed_and_another_is_refused(root: Path, said) -> None:
    folder = write_run(root, "stopped", status="interrupted")
    (folder / "checkpoints" / "5").mkdir(parents=True)
    said("resume", "stopped")
    assert [job.resumes for job in jobs(root)] == ["stopped"]
    write_run(root, "whole")
    assert said("resume", root / "whole", code=2) == (
        f"error TP050: {root / 'whole'}: The run cannot be continued by the queue of {root}.\n"
        "  A run can be continued if it is in this root, stopped before its end, and has a complete checkpoint.\n"
        "  Next: `trainproof runs` shows the status of each run; `trainproof queue retry` starts one again.\n"
    )


def test_a_job_that_does_not_exist_is_named(root: Path, said) -> None:
    assert said("list") == "The queue is empty.\n"
    assert said("cancel", "job-x", code=2) == (
        f"error TP091: {root}: The queue of this root has no job job-x.\n"
        "  Next: `trainproof queue list` names the jobs; --root names another folder of runs.\n"
    )
