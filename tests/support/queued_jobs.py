"""Jobs in the queue of a root, without a worker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from launch.jobs.folder import OUTPUT, Job, enqueue, mark_ended, new_job_folder, read_job


def job_in(root: Path, run: str = "a-run", exit_code: int | None = None, output: str = "") -> Job:
    """Queue a job of this run, which has ended if it has an exit code."""
    now = datetime.now(UTC)
    folder = new_job_folder(root, now)
    enqueue(folder, run=run, working_folder=root, now=now, device="gpu")
    (folder / OUTPUT).write_text(output)
    job = read_job(folder)
    assert job is not None
    if exit_code is not None:
        mark_ended(job, exit_code)
    return job
