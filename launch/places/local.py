"""This machine: a job is a process of this program beside its worker."""

from __future__ import annotations

from launch.jobs.folder import CONFIG, Job
from launch.jobs.program import PROGRAM, resume_arguments, train_arguments
from launch.places.place import Place


def command(job: Job) -> list[str]:
    """Return this program with what it needs to do a job; every path in it is inside the job's root."""
    output = job.root / job.run
    if job.resumes is not None:
        return [*PROGRAM, *resume_arguments(job.root / job.resumes, output, force=job.force)]
    return [*PROGRAM, *train_arguments(job.folder / CONFIG, output, force=job.force)]


PLACE = Place(command=command)
