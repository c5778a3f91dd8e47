"""Actions on the queue of a runs folder: start, stop, retry, resume, move.

The functions return immediately. The worker, a separate process, runs the jobs. Functions that write files raise
`OSError` if that fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence import lock
from evidence.layout import CHECKPOINTS, CONFIG, SESSION, new_run_id
from evidence.run import Run, read_existing_run
from evidence.writing import write_json, write_text
from launch import process
from launch.jobs import (
    ANY_DEVICE,
    DEVICES,
    LOCAL,
    NO_JOBS,
    POSITION,
    Job,
    enqueue,
    jobs,
    launch_folder,
    mark_cancelled,
    read_job,
    read_object,
    refuse_link,
)
from launch.places import find_place, get_place
from launch.places.place import RemotePlace
from schemas.problems import ProblemError, problem_of
from schemas.reading import get_bool, get_path, write_yaml

WORKER = (sys.executable, "-m", "launch.worker")

_WORKER_FILE = "worker.json"
_RUN_TIME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""Suffix that `new_run_id` adds to the name of a run."""

_MAX_NAME = 100


def start(
    root: Path,
    config: Mapping[str, Any],
    *,
    force: bool = False,
    place: str = LOCAL,
    after: Mapping[str, bool] = NO_JOBS,
) -> Job:
    """Queue a run of a valid configuration at a place that `launch.places` knows, and start a worker if needed.

    `after` has the jobs that it waits for, as in `enqueue`.

    Raises:
        ProblemError: The place is unknown or cannot run it, or the file system does not support file locks.
    """
    get_place(place).check(config)
    name, text = str(config.get("name", "run")), write_yaml(dict(config))
    return _put(root, name, None, config=text, force=force, device=_device(config), place=place, after=after)


def resume(root: Path, run: Run, *, stopped: Job | None = None, after: Mapping[str, bool] = NO_JOBS) -> Job:
    """Queue the continuation of a stopped run as a new run; `after` as in `start`.

    A forced run is forced again. If this user queued the stopped run, its job gives working folder and place, and at a
    remote place the configuration, whose files are sent again.
    """
    own = stopped if stopped is not None and stopped.is_own else None
    is_remote = own is not None and isinstance(find_place(own.place), RemotePlace)
    return _put(
        root,
        run.path.name,
        own,
        config=_read_config(own) if own is not None and is_remote else None,
        resumes=run.path.name,
        force=is_forced(run.plan, run.manifest),
        device=_device(run.config or {}),
        place=own.place if own is not None else LOCAL,
        after=after,
    )


def retry(root: Path, job: Job) -> Job:
    """Queue a job again as a new run."""
    same = {name: getattr(job, name) for name in ("resumes", "force", "device", "place")}
    return _put(root, job.run, job, config=_read_config(job), **same)


def _read_config(job: Job) -> str | None:
    path = job.folder / CONFIG
    return refuse_link(path).read_text("utf-8", "replace") if path.exists() else None


def _put(root: Path, name: str, earlier: Job | None, **request: Any) -> Job:
    """Queue a run with a new id that is made from a name, and start a worker.

    Run it in the working folder of the earlier job if this user queued that job, otherwise in the current folder.
    """
    lock.refuse_without_locks(launch_folder(root))
    now = datetime.now(UTC)
    folder = Path(earlier.working_folder) if earlier is not None and earlier.is_own else Path.cwd()
    job = enqueue(root.resolve(), run=name_run(name, now), now=now, working_folder=folder, **request)
    # Without a worker the job waits, and page and command line offer to continue the queue. An error would make users
    # queue the run twice.
    with suppress(OSError):
        start_worker(root)
    return job


def name_run(name: str, now: datetime) -> str:
    """Return a new id for a run whose configuration or predecessor has this name."""
    stem = re.sub("[^A-Za-z0-9._-]", "-", _RUN_TIME.sub("", name)).lstrip("._-")[:_MAX_NAME]
    return new_run_id(stem or "run", now)


def _device(config: Mapping[str, Any]) -> str:
    """Return the device of a configuration, or `ANY_DEVICE`."""
    device = get_path(config, "mesh", "device")
    return str(device) if device in DEVICES else ANY_DEVICE


def cancel(job: Job, *, end: Callable[[process.StartedProcess], None] = process.interrupt) -> None:
    """Remove a waiting job from the queue, or interrupt a running one, which then saves a checkpoint and ends."""
    current = read_job(job.folder)
    if current is None or current.has_ended:  # the result of an ended job stays, whatever the page still showed
        return
    mark_cancelled(job.folder)
    current = read_job(job.folder)  # a worker may have started it before it saw the request
    if current is not None and current.started is not None:
        end(current.started)


def kill(job: Job) -> None:
    """Kill a job without saving a checkpoint. Its run keeps the rows written so far and is not finalized."""
    cancel(job, end=process.kill)


def move_up(root: Path, job: Job) -> None:
    """Swap a waiting job with the waiting job before it."""
    waiting = [other for other in jobs(root) if other.state == "waiting"]
    index = next((index for index, other in enumerate(waiting) if other.job_id == job.job_id), 0)
    if index > 0:
        before, moved = waiting[index - 1], waiting[index]
        # If a process dies between these two writes, both jobs have the same position; the order by id stays.
        write_text(before.folder / POSITION, f"{max(moved.position, before.position + 1)}\n")
        write_text(moved.folder / POSITION, f"{before.position}\n")


def has_worker(root: Path) -> bool:
    """Return whether a worker is running on the queue, or was just started."""
    newest = read_object(launch_folder(root) / _WORKER_FILE)
    return lock.is_alive(launch_folder(root)) or process.is_alive(process.parse_process(newest))


def start_worker(root: Path) -> None:
    """Start a worker for the queue. If one is already running, the new one exits.

    Raises:
        ProblemError: The file system does not support file locks (exit code 2).
    """
    folder = launch_folder(root.resolve())
    folder.mkdir(parents=True, exist_ok=True)
    lock.refuse_without_locks(folder)
    with refuse_link(folder / "worker.log").open("ab") as output:
        command = [*WORKER, str(folder.parent)]
        worker = process.start(command, folder=process.HOME, output=output, errors=subprocess.STDOUT)
    # For the moment before it has locked the queue.
    write_json(folder / _WORKER_FILE, asdict(process.identify(worker.pid)))
    # A process that nobody waits for becomes a zombie.
    threading.Thread(target=worker.wait, name="wait for queue worker", daemon=True).start()


def find_job(root: Path, name: str) -> Job:
    """Return the newest job with this id or run name; raise `ProblemError` (exit code 2) without one."""
    found = [job for job in jobs(root) if name in {job.job_id, job.run}]
    if not found:
        what = f"This queue does not contain the job {name}."
        fix = "`trainproof queue list` shows the jobs; pass --root for another runs folder."
        raise ProblemError([problem_of("TP091", file=str(root), what=what, why=None, next=fix)], exit_code=2)
    return max(found, key=lambda job: job.created_at)


def find_resumable(root: Path, folder: Path) -> tuple[Run, Job | None]:
    """Return a stopped run by its folder or name, and its newest job, if any.

    Raises:
        ProblemError: The run is not in the root, or cannot be resumed (exit code 2).
    """
    path = folder if folder.is_dir() else root / folder
    run = read_existing_run(path)
    if path.resolve().parent != root.resolve() or not can_resume(run):
        problem = problem_of(
            "TP050",
            file=str(path),
            what=f"The run cannot be resumed in the queue of {root}.",
            why="It must be in this folder, have stopped before its end, and have a complete checkpoint.",
            next="Check its status with `trainproof runs`, or start it again with `trainproof queue retry`.",
        )
        raise ProblemError([problem], exit_code=2)
    return run, next((job for job in reversed(jobs(root)) if job.run == path.name), None)


def can_resume(run: Run) -> bool:
    """Return whether a run stopped before its end and has a configuration and a complete checkpoint, or a session."""
    if run.status in {"running", "succeeded"} or CONFIG not in run.files:
        return False
    if SESSION in run.files:
        return True  # its checkpoint stayed at the place
    try:
        # The folder of an incomplete checkpoint has a longer name than its step.
        return any(path.name.isdecimal() for path in (run.path / CHECKPOINTS).iterdir())
    except OSError:
        return False


def is_forced(plan: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None) -> bool:
    """Return whether a run was started although its plan did not fit. It can only be resumed with `--force`."""
    return get_bool(plan, "forced") is True or get_bool(manifest, "training", "forced") is True
