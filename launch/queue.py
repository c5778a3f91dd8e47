"""What can be done with the queue of a root: start, resume, retry, cancel, kill, move. The page and the verbs call it.

Each function returns at once; the worker does the work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.layout import new_run_id
from evidence.lock import refuse_without_locks
from evidence.run import Run, read_existing_run
from evidence.writing import write_text
from launch.jobs import process, working
from launch.jobs.files import no_link
from launch.jobs.folder import (
    ANY_DEVICE,
    CONFIG,
    DEVICES,
    LAUNCH,
    LOCAL,
    Job,
    enqueue,
    exchange_positions,
    jobs,
    mark_cancelled,
    new_job_folder,
    read_job,
)
from launch.places import PLACES
from launch.resuming import can_resume, is_forced
from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import write_yaml

_RUN_TIME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""What `new_run_id` adds to a run's name."""

_LONGEST_NAME = 100
"""Characters kept of the name of a run that is continued or tried again, so that its id stays one."""


def start(root: Path, config: Mapping[str, Any], *, force: bool = False, place: str = LOCAL) -> Job:
    """Put a run by a checked configuration into the queue and make sure that a worker works on it.

    Args:
        root: Folder of runs.
        config: What is written to `config.yaml`.
        force: Whether to run although the plan states that it does not fit; the run records it.
        place: Where it runs, as in `launch/places`.

    Raises:
        ProblemError: There is no such place, or the root has no file locks (exit code 2).
        OSError: The job could not be written under the root.
    """
    if place not in PLACES:
        raise ProblemError([_no_place(place)], exit_code=2)
    return _put(
        root,
        name=str(config.get("name", "run")),
        config=write_yaml(dict(config)),
        force=force,
        working_folder=Path.cwd(),
        device=_device(config),
        place=place,
    )


def resume(root: Path, run: Run, *, after: Job | None = None) -> Job:
    """Put the continuation of a stopped run into the queue; it is a run of its own that names its parent.

    Args:
        root: Folder of runs.
        run: A run in it that `can_resume`; one that was forced is forced again.
        after: The job that did the run, whose working folder and place are the right ones. None: not known.

    Raises:
        OSError: The job could not be written under the root.
    """
    return _put(
        root,
        name=run.path.name,
        resumes=run.path.name,
        force=is_forced(run.plan, run.manifest),
        working_folder=_working_folder(after),
        device=_device(run.config or {}),
        place=after.place if after is not None and after.is_own else LOCAL,
    )


def retry(root: Path, job: Job) -> Job:
    """Put the same again into the queue, as a run of its own; what the first attempt wrote stays.

    Raises:
        OSError: The job could not be written under the root, or its configuration is gone.
    """
    return _put(
        root,
        name=job.run,
        config=no_link(job.folder / CONFIG).read_text("utf-8", "replace") if job.resumes is None else None,
        resumes=job.resumes,
        force=job.force,
        working_folder=_working_folder(job),
        device=job.device,
        place=job.place,
    )


def _put(
    root: Path,
    *,
    name: str,
    working_folder: Path,
    force: bool,
    device: str,
    place: str,
    config: str | None = None,
    resumes: str | None = None,
) -> Job:
    """Write a job behind the others of a root and start a worker.

    If no worker can be started, the job waits and the page offers to continue the queue; an error here would make
    a user queue it twice.
    """
    refuse_without_locks(root / LAUNCH)
    now = datetime.now(UTC)
    folder = new_job_folder(root.resolve(), now)
    if config is not None:
        write_text(folder / CONFIG, config)
    enqueue(
        folder,
        run=_run_id(name, now),
        resumes=resumes,
        force=force,
        working_folder=working_folder,
        now=now,
        device=device,
        place=place,
    )
    with suppress(OSError):
        working.start_worker(root.resolve())
    job = read_job(folder)
    assert job is not None  # It was written just now.
    return job


def cancel(job: Job) -> None:
    """Stop a job: a queued one never starts, a running one is interrupted, seals its run and end; an ended one stays.

    Raises:
        OSError: It could not be noted.
    """
    _stop(job, at_once=False)


def kill(job: Job) -> None:
    """End a job at once, if it has not ended; its run keeps the rows written so far and is not sealed.

    Raises:
        OSError: It could not be noted.
    """
    _stop(job, at_once=True)


def _stop(job: Job, *, at_once: bool) -> None:
    now = read_job(job.folder)
    if now is None or now.has_ended:  # An ended job keeps its verdict, whatever the page still showed.
        return
    mark_cancelled(job, datetime.now(UTC))
    again = read_job(job.folder)  # A worker may have started it before it saw the note.
    if again is not None and again.started is not None:
        (process.kill if at_once else process.interrupt)(again.started)


def move_up(root: Path, job: Job) -> None:
    """Let a waiting job change places with the waiting job before it."""
    waiting = [other for other in jobs(root) if other.state == "waiting"]
    place = next((index for index, other in enumerate(waiting) if other.job_id == job.job_id), 0)
    if place > 0:
        exchange_positions(waiting[place - 1], waiting[place])


def _device(config: Mapping[str, Any]) -> str:
    """Return the device that a configuration requests; `ANY_DEVICE` where it leaves that open."""
    mesh = config.get("mesh")
    asked = mesh.get("device") if isinstance(mesh, Mapping) else None
    return str(asked) if asked in DEVICES else ANY_DEVICE


def _run_id(name: str, now: datetime) -> str:
    """Return the id of a run of this name, or of one that follows a run of this id, whatever it is called."""
    kept = re.sub("[^A-Za-z0-9._-]", "-", _RUN_TIME.sub("", name)).lstrip("._-")
    return new_run_id(kept[:_LONGEST_NAME] or "run", now)


def _working_folder(job: Job | None) -> Path:
    """Return where relative paths of what follows a job start: where its own did, if this user chose it."""
    return Path(job.working_folder) if job is not None and job.is_own else Path.cwd()


def job_named(root: Path, name: str) -> Job:
    """Return the newest job of this id, or the newest that writes the run of this name.

    Raises:
        ProblemError: No job has that name (exit code 2).
    """
    found = [job for job in jobs(root) if name in {job.job_id, job.run}]
    if not found:
        raise ProblemError([_no_job(root, name)], exit_code=2)
    return max(found, key=lambda job: job.created_at)


def resumable(root: Path, folder: Path) -> tuple[Run, Job | None]:
    """Return a stopped run of a root, given by its folder or its name, and the job that did it, if one did.

    Raises:
        ProblemError: There is no such run in the root, or it cannot be continued (exit code 2).
    """
    path = folder if folder.is_dir() else root / folder
    run = read_existing_run(path)
    if path.resolve().parent != root.resolve() or not can_resume(run):
        raise ProblemError([_not_resumable(root, path)], exit_code=2)
    return run, next((job for job in reversed(jobs(root)) if job.run == path.name), None)


def _no_job(root: Path, name: str) -> Problem:
    return problem_of(
        "TP091",
        file=str(root),
        what=f"The queue of this root has no job {name}.",
        why=None,
        next="`trainproof queue list` names the jobs; --root names another folder of runs.",
    )


def _no_place(name: str) -> Problem:
    return problem_of("TP768", file=name, what=f"The place {name} is unknown.", expected=", ".join(PLACES))


def _not_resumable(root: Path, folder: Path) -> Problem:
    return problem_of(
        "TP050",
        file=str(folder),
        what=f"The run cannot be continued by the queue of {root}.",
        why="A run can be continued if it is in this root, stopped before its end, and has a complete checkpoint.",
        next="`trainproof runs` shows the status of each run; `trainproof queue retry` starts one again.",
    )
