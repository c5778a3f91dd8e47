"""What the buttons do: start, stop, kill, move, retry, resume. Each returns at once; the worker does the work."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from evidence.records.ours import Run
from evidence.run import lock
from evidence.run.layout import new_run_id
from evidence.run.write import write_json, write_text
from launch import process
from launch.files import no_link, read_started
from launch.jobs import (
    ANY_DEVICE,
    CONFIG,
    DEVICES,
    Job,
    enqueue,
    exchange_positions,
    jobs,
    launch_folder,
    mark_cancelled,
    new_job_folder,
    read_job,
)
from launch.program import HOME
from launch.resuming import is_forced

_RUN_TIME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""What `new_run_id` adds to a run's name."""

_LONGEST_NAME = 100
"""Characters kept of the name of a run that is continued or tried again, so that its id stays one."""

_WORKER = "worker.json"
"""Process id and start time of the worker that was started last, in the folder of jobs."""

WORKER = (sys.executable, "-m", "launch.worker")


def config_text(config: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in its own order."""
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)


def start(root: Path, config: Mapping[str, Any], *, force: bool = False) -> Job:
    """Put a run by a checked configuration into the queue and see that somebody works through it.

    Args:
        root: Folder of runs.
        config: What is written to `config.yaml`.
        force: Whether to run although the plan says that it does not fit; the run records it.

    Raises:
        OSError: The job could not be written under the root.
    """
    now = datetime.now(UTC)
    root = root.resolve()
    folder = new_job_folder(root, now)
    write_text(folder / CONFIG, config_text(config))
    run = _run_id(str(config.get("name", "run")), now)
    enqueue(folder, run=run, force=force, working_folder=Path.cwd(), now=now, device=_device(config))
    return _worked_on(folder)


def resume(root: Path, run: Run, *, after: Job | None = None) -> Job:
    """Put the continuation of a run that stopped into the queue; it is a run of its own that names its parent.

    Args:
        root: Folder of runs.
        run: A run in it that `can_resume`; one that was forced is forced again.
        after: The job that did the run, whose working folder is the right one. None: not known.

    Raises:
        OSError: The job could not be written under the root.
    """
    now = datetime.now(UTC)
    folder = new_job_folder(root.resolve(), now)
    name = run.path.name
    enqueue(
        folder,
        run=_run_id(name, now),
        resumes=name,
        force=is_forced(run.plan, run.manifest),
        working_folder=_working_folder(after),
        now=now,
        device=_device(run.config or {}),
    )
    return _worked_on(folder)


def retry(root: Path, job: Job) -> Job:
    """Put the same again into the queue, as a run of its own; what the first attempt wrote stays.

    Raises:
        OSError: The job could not be written under the root, or its configuration is gone.
    """
    now = datetime.now(UTC)
    root = root.resolve()
    folder = new_job_folder(root, now)
    if job.resumes is None:
        write_text(folder / CONFIG, no_link(job.folder / CONFIG).read_text("utf-8", "replace"))
    enqueue(
        folder,
        run=_run_id(job.run, now),
        resumes=job.resumes,
        force=job.force,
        working_folder=_working_folder(job),
        now=now,
        device=job.device,
    )
    return _worked_on(folder)


def cancel(job: Job) -> None:
    """Stop a job: one that waits never starts, one that runs is asked to seal its run and end; an ended one stays.

    Raises:
        OSError: It could not be noted.
    """
    if (started := _cancelled(job)) is not None:
        process.interrupt(started)


def kill(job: Job) -> None:
    """End a job at once, if it has not ended; its run keeps the rows written so far and is not sealed.

    Raises:
        OSError: It could not be noted.
    """
    if (started := _cancelled(job)) is not None:
        process.kill(started)


def move_up(root: Path, job: Job) -> None:
    """Let a waiting job change places with the waiting job before it."""
    waiting = [other for other in jobs(root) if other.state == "waiting"]
    place = next((index for index, other in enumerate(waiting) if other.job_id == job.job_id), 0)
    if place > 0:
        exchange_positions(waiting[place - 1], waiting[place])


def is_worked_on(root: Path) -> bool:
    """Return whether a worker holds the queue of this root, or was started and is about to."""
    if lock.is_alive(launch_folder(root)):
        return True
    newest = read_started(launch_folder(root) / _WORKER)
    return newest is not None and process.is_alive(newest)


def start_worker(root: Path) -> None:
    """Start a worker for the queue; one that finds another at work ends at once.

    Raises:
        OSError: It could not be started, or not be noted.
    """
    launch_folder(root).mkdir(parents=True, exist_ok=True)
    with no_link(launch_folder(root) / "worker.log").open("ab") as output:
        worker = subprocess.Popen(
            [*WORKER, str(root.resolve())],
            cwd=HOME,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # It takes a moment until it holds the queue, and nobody should read meanwhile that nobody does.
    write_json(launch_folder(root) / _WORKER, asdict(process.started_now(worker.pid)))
    # Whoever starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=worker.wait, name="reap queue worker", daemon=True).start()


def _device(config: Mapping[str, Any]) -> str:
    """Return the device that a configuration asks for; `ANY_DEVICE` where it leaves that open."""
    mesh = config.get("mesh")
    asked = mesh.get("device") if isinstance(mesh, Mapping) else None
    return str(asked) if asked in DEVICES else ANY_DEVICE


def _run_id(name: str, now: datetime) -> str:
    """Return the id of a run of this name, or of one that follows a run of this id, whatever it is called."""
    kept = re.sub("[^A-Za-z0-9._-]", "-", _RUN_TIME.sub("", name)).lstrip("._-")
    return new_run_id(kept[:_LONGEST_NAME] or "run", now)


def _cancelled(job: Job) -> process.Started | None:
    """Note that a job is to stop and return its process, None for one that was not started or has ended.

    An ended one keeps its verdict, whatever the page still showed.
    """
    now = read_job(job.folder)
    if now is None or now.has_ended:
        return None
    mark_cancelled(job, datetime.now(UTC))
    again = read_job(job.folder)  # A worker may have started it before it saw the note.
    return again.started if again is not None else None


def _working_folder(job: Job | None) -> Path:
    """Return where relative paths of what follows a job start: where its own did, if this user said so."""
    return Path(job.working_folder) if job is not None and job.is_own else Path.cwd()


def _worked_on(folder: Path) -> Job:
    """Return the job in a folder, once there is somebody who works through the queue.

    Where nobody could be started it waits, and the page offers to continue the queue; asking again would double it.
    """
    with suppress(OSError):
        start_worker(folder.parent.parent)
    job = read_job(folder)
    assert job is not None  # It was written just now.
    return job
