"""This machine: a job is a folder under the root, and one worker process for each root runs one job after the other."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from evidence.run import lock
from evidence.run.write import write_json, write_text
from launch.jobs import process
from launch.jobs.files import no_link, read_started
from launch.jobs.folder import CONFIG, OUTPUT, Job, enqueue, launch_folder, mark_cancelled, new_job_folder, read_job
from launch.jobs.output import tail
from launch.jobs.program import HOME
from launch.places.place import Request

_WORKER = "worker.json"
"""Process id and start time of the worker that was started last, in the folder of jobs."""

WORKER = (sys.executable, "-m", "launch.worker")


def prepare(request: Request) -> Path:
    """Write the configuration into a new job folder and return the folder."""
    folder = new_job_folder(request.root, request.now)
    if request.config is not None:
        write_text(folder / CONFIG, request.config)
    return folder


def submit(request: Request, folder: Path) -> Job:
    """Put the job at the end of the queue and start a worker.

    If no worker can be started, the job waits and the page offers to continue the queue; an error here would make
    somebody queue it twice.
    """
    enqueue(
        folder,
        run=request.run,
        resumes=request.resumes,
        force=request.force,
        working_folder=request.working_folder,
        now=request.now,
        device=request.device,
    )
    with suppress(OSError):
        start_worker(request.root)
    job = read_job(folder)
    assert job is not None  # It was written just now.
    return job


def status(job: Job) -> Job | None:
    """Return the job as it is now, None if its folder is gone."""
    return read_job(job.folder)


def logs(job: Job, lines: int = 40) -> str:
    """Return the last lines that the job printed."""
    return tail(job.folder / OUTPUT, lines)


def fetch(job: Job) -> Path:
    """Return the run folder; it was written where it belongs."""
    return job.root / job.run


def cancel(job: Job, *, at_once: bool = False) -> None:
    """Stop the job: a queued one never starts, a running one is interrupted, or killed if `at_once`."""
    now = read_job(job.folder)
    if now is None or now.has_ended:  # An ended job keeps its verdict, whatever the page still showed.
        return
    mark_cancelled(job, datetime.now(UTC))
    again = read_job(job.folder)  # A worker may have started it before it saw the note.
    if again is not None and again.started is not None:
        (process.kill if at_once else process.interrupt)(again.started)


def is_worked_on(root: Path) -> bool:
    """Return whether a worker holds the queue of this root, or was started and is about to."""
    if lock.is_alive(launch_folder(root)):
        return True
    newest = read_started(launch_folder(root) / _WORKER)
    return newest is not None and process.is_alive(newest)


def start_worker(root: Path) -> None:
    """Start a worker for the queue; if another one is at work, the new one ends at once.

    Raises:
        OSError: It could not be started, or not be noted.
    """
    launch_folder(root).mkdir(parents=True, exist_ok=True)
    with no_link(launch_folder(root) / "worker.log").open("ab") as output:
        worker = process.start([*WORKER, str(root.resolve())], folder=HOME, output=output, errors=subprocess.STDOUT)
    # It takes a moment until it holds the queue, and the page must not say meanwhile that nothing works on it.
    write_json(launch_folder(root) / _WORKER, asdict(process.started_now(worker.pid)))
    # Whoever starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=worker.wait, name="reap queue worker", daemon=True).start()
