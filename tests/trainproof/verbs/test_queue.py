"""The command `queue`, with small programs instead of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stand_ins import now, put, stand_in, wait_for
from synthetic import write_run

from launch import queue
from launch.jobs import OUTPUT, jobs, tail
from schemas.reading import read_yaml

CONFIG = Path(__file__).parents[3] / "trainer" / "configs" / "tiny.yaml"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch)
    yield tmp_path / "runs"
    for job in jobs(tmp_path / "runs"):
        queue.kill(job)
    wait_for(lambda: not queue.has_worker(tmp_path / "runs"))


@pytest.fixture
def printed(run, root: Path):
    def printed(*arguments: object, code: int = 0) -> str:
        ended, out, errors = run("queue", *arguments, "--root", root)
        assert (ended, errors == "") == (code, code == 0), errors
        return out or errors

    return printed


def test_a_run_is_added_listed_and_tried_again(root: Path, printed) -> None:
    added = printed("add", "--config", CONFIG, "--set", 'name="1e-3"', "--set", "mesh.device=cpu")
    (job,) = jobs(root)
    assert added == f"{job.run} is queued as {job.job_id}.\n"
    assert read_yaml((job.folder / "config.yaml").read_text(), file="config.yaml").value["name"] == "1e-3"
    wait_for(lambda: now(job).has_ended)
    listed = json.loads(printed("list", "--json"))
    assert [(one["job"], one["run"], one["device"], one["state"]) for one in listed] == [
        (job.job_id, job.run, "cpu", "failed")  # A real configuration holds no stand-in's code.
    ]
    assert "KeyError: 'code'" in printed("logs", job.run)
    printed("retry", job.job_id)
    again = jobs(root)[-1]
    assert (again.job_id != job.job_id, again.device) == (True, "cpu")
    heads, *rows = printed("list").splitlines()
    assert heads.split() == ["job", "state", "device", "exit", "code", "added", "at", "run"]
    assert [row.split()[0] for row in rows] == [job.job_id, again.job_id]


def test_what_cannot_be_queued_or_found_is_named(root: Path, printed) -> None:
    assert "error TP" in printed("add", "--config", CONFIG, "--set", "limits.steps=none", code=2)
    assert jobs(root) == []
    assert printed("list") == "The queue is empty.\n"
    assert printed("cancel", "job-x", code=2) == (
        f"error TP091: {root}: This queue does not contain the job job-x.\n"
        "  Next: `trainproof queue list` shows the jobs; pass --root for another runs folder.\n"
    )


def test_a_job_is_cancelled_and_the_queue_goes_on(root: Path, printed) -> None:
    first, second = put(root, "print('first')", run="first"), put(root, "print('second')", run="second")
    printed("cancel", first.job_id)
    assert now(first).state == "cancelled"
    printed("continue")
    wait_for(lambda: now(second).has_ended)
    assert printed("logs", "second", "--lines", 1) == "second\n"
    assert printed("logs", "first") == ""


def test_a_running_job_is_killed(root: Path, printed) -> None:
    job = put(root, "import signal; print('ready', flush=True); signal.pause()")
    queue.start_worker(root)
    wait_for(lambda: tail(job.folder / OUTPUT) == "ready")
    printed("cancel", job.job_id, "--now")
    wait_for(lambda: now(job).has_ended)
    text = f"{job.run} was killed by signal 9 (SIGKILL) on request.\n"
    assert (now(job).exit_code, printed("logs", job.job_id)) == (-9, f"ready\n{text}")
    assert printed("list").endswith(text)


def test_a_stopped_run_is_resumed_and_another_is_refused(root: Path, printed) -> None:
    folder = write_run(root, "stopped", status="interrupted")
    (folder / "checkpoints" / "5").mkdir(parents=True)
    printed("resume", "stopped")
    assert [job.resumes for job in jobs(root)] == ["stopped"]
    write_run(root, "whole")
    assert printed("resume", root / "whole", code=2) == (
        f"error TP050: {root / 'whole'}: The run cannot be resumed in the queue of {root}.\n"
        "  It must be in this folder, have stopped before its end, and have a complete checkpoint.\n"
        "  Next: Check its status with `trainproof runs`, or start it again with `trainproof queue retry`.\n"
    )
