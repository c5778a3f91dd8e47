"""From what a user typed to a job or a run of the queue; what does not exist is refused with a problem."""

from __future__ import annotations

from pathlib import Path

from evidence.records.ours import Run, read_existing_run
from launch.jobs import Job, jobs
from launch.resuming import can_resume
from schemas.problems.problem import Problem, ProblemError


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
    return Problem(
        code="TP091",
        severity="error",
        file=str(root),
        what=f"The queue of this root has no job {name}.",
        next="`trainproof queue list` names the jobs; --root names another folder of runs.",
    )


def _not_resumable(root: Path, folder: Path) -> Problem:
    return Problem(
        code="TP050",
        severity="error",
        file=str(folder),
        what=f"The run cannot be continued by the queue of {root}.",
        why="A run can be continued if it is in this root, stopped before its end, and has a complete checkpoint.",
        next="`trainproof runs` shows the status of each run; `trainproof queue retry` starts one again.",
    )
