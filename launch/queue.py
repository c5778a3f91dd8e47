"""What can be done with the queue of a root: start, resume, retry, cancel, kill, move. The page and the verbs call it.

Each function returns at once; the worker does the work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.records.ours import Run, read_existing_run
from evidence.run.layout import new_run_id
from evidence.run.unreadable import NO_CHECKPOINT, NO_SUCH_PATH
from launch.jobs.files import no_link
from launch.jobs.folder import ANY_DEVICE, CONFIG, DEVICES, Job, exchange_positions, jobs
from launch.places import local
from launch.places.place import Place, Request
from launch.resuming import can_resume, is_forced
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import problem_of
from schemas.reading.yaml_text import write_yaml

PLACE: Place = local
"""Where runs are carried out."""

_RUN_TIME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""What `new_run_id` adds to a run's name."""

_LONGEST_NAME = 100
"""Characters kept of the name of a run that is continued or tried again, so that its id stays one."""


def start(root: Path, config: Mapping[str, Any], *, force: bool = False) -> Job:
    """Put a run by a checked configuration into the queue and make sure that a worker works on it.

    Args:
        root: Folder of runs.
        config: What is written to `config.yaml`.
        force: Whether to run although the plan says that it does not fit; the run records it.

    Raises:
        OSError: The job could not be written under the root.
    """
    now = datetime.now(UTC)
    request = Request(
        root=root.resolve(),
        run=_run_id(str(config.get("name", "run")), now),
        config=write_yaml(dict(config)),
        force=force,
        working_folder=Path.cwd(),
        now=now,
        device=_device(config),
    )
    return PLACE.submit(request, PLACE.prepare(request))


def resume(root: Path, run: Run, *, after: Job | None = None) -> Job:
    """Put the continuation of a stopped run into the queue; it is a run of its own that names its parent.

    Args:
        root: Folder of runs.
        run: A run in it that `can_resume`; one that was forced is forced again.
        after: The job that did the run, whose working folder is the right one. None: not known.

    Raises:
        OSError: The job could not be written under the root.
    """
    now = datetime.now(UTC)
    name = run.path.name
    request = Request(
        root=root.resolve(),
        run=_run_id(name, now),
        config=None,
        resumes=name,
        force=is_forced(run.plan, run.manifest),
        working_folder=_working_folder(after),
        now=now,
        device=_device(run.config or {}),
    )
    return PLACE.submit(request, PLACE.prepare(request))


def retry(root: Path, job: Job) -> Job:
    """Put the same again into the queue, as a run of its own; what the first attempt wrote stays.

    Raises:
        OSError: The job could not be written under the root, or its configuration is gone.
    """
    now = datetime.now(UTC)
    config = no_link(job.folder / CONFIG).read_text("utf-8", "replace") if job.resumes is None else None
    request = Request(
        root=root.resolve(),
        run=_run_id(job.run, now),
        config=config,
        resumes=job.resumes,
        force=job.force,
        working_folder=_working_folder(job),
        now=now,
        device=job.device,
    )
    return PLACE.submit(request, PLACE.prepare(request))


def cancel(job: Job) -> None:
    """Stop a job: a queued one never starts, a running one is asked to seal its run and end; an ended one stays.

    Raises:
        OSError: It could not be noted.
    """
    PLACE.cancel(job, at_once=False)


def kill(job: Job) -> None:
    """End a job at once, if it has not ended; its run keeps the rows written so far and is not sealed.

    Raises:
        OSError: It could not be noted.
    """
    PLACE.cancel(job, at_once=True)


def move_up(root: Path, job: Job) -> None:
    """Let a waiting job change places with the waiting job before it."""
    waiting = [other for other in jobs(root) if other.state == "waiting"]
    place = next((index for index, other in enumerate(waiting) if other.job_id == job.job_id), 0)
    if place > 0:
        exchange_positions(waiting[place - 1], waiting[place])


def _device(config: Mapping[str, Any]) -> str:
    """Return the device that a configuration asks for; `ANY_DEVICE` where it leaves that open."""
    mesh = config.get("mesh")
    asked = mesh.get("device") if isinstance(mesh, Mapping) else None
    return str(asked) if asked in DEVICES else ANY_DEVICE


def _run_id(name: str, now: datetime) -> str:
    """Return the id of a run of this name, or of one that follows a run of this id, whatever it is called."""
    kept = re.sub("[^A-Za-z0-9._-]", "-", _RUN_TIME.sub("", name)).lstrip("._-")
    return new_run_id(kept[:_LONGEST_NAME] or "run", now)


def _working_folder(job: Job | None) -> Path:
    """Return where relative paths of what follows a job start: where its own did, if this user said so."""
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
        NO_SUCH_PATH,
        file=str(root),
        what=f"The queue of this root has no job {name}.",
        why=None,
        next="`trainproof queue list` names the jobs; --root names another folder of runs.",
    )


def _not_resumable(root: Path, folder: Path) -> Problem:
    return problem_of(
        NO_CHECKPOINT,
        file=str(folder),
        what=f"The run cannot be continued by the queue of {root}.",
        why="A run can be continued if it is in this root, stopped before its end, and has a complete checkpoint.",
        next="`trainproof runs` shows the status of each run; `trainproof queue retry` starts one again.",
    )
