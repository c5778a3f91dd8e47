"""Jobs of a queue in words: text for the terminal and plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.problems.formats import NOTHING
from launch.jobs import Job
from schemas.problems.visible import as_lines
from trainproof.terminal.comparisons import aligned


def jobs_text(jobs: Sequence[Job]) -> str:
    """Return the jobs as aligned text, first in the queue first."""
    if not jobs:
        return as_lines(["The queue is empty."])
    heads = ("job", "state", "device", "exit code", "asked for", "run")
    rows = [
        (
            job.job_id,
            job.state,
            job.device,
            NOTHING if job.exit_code is None else str(job.exit_code),
            job.created_at[:19].replace("T", " "),
            job.run,
        )
        for job in jobs
    ]
    return aligned([heads, *rows])


def jobs_json(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Return what each job is, and what may be asked of it, as values."""
    return [
        {
            "job": job.job_id,
            "state": job.state,
            "run": job.run,
            "resumes": job.resumes,
            "device": job.device,
            "force": job.force,
            "created_at": job.created_at,
            "exit_code": job.exit_code,
            "pid": job.started.pid if job.started and not job.has_ended else None,
        }
        for job in jobs
    ]
