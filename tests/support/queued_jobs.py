"""Jobs in the queue of a root, without a worker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from launch.jobs import OUTPUT, Job, enqueue, mark_ended


def job_in(root: Path, run: str = "a-run", exit_code: int | None = None, output: str = "") -> Job:
    """Queue a job of this run, which has ended if it has an exit code."""
    now = datetime.now(UTC)
    job = enqueue(root, run=run, working_folder=root, now=now, device="gpu")
    (job.folder / OUTPUT).write_text(output)
    if exit_code is not None:
        mark_ended(job.folder, exit_code)
    return job
