"""This machine: a job is a child process of the worker."""

from __future__ import annotations

from launch.jobs import CONFIG, Job
from launch.places.place import Place
from launch.process import PROGRAM


class Local(Place):
    """This machine."""

    def command(self, job: Job) -> list[str]:
        """Return the `trainproof train` command of a job. All its paths are inside the root."""
        resumed = job.root / job.resumes if job.resumes is not None else None
        source = ["--config", str(job.folder / CONFIG)] if resumed is None else ["--resume", str(resumed)]
        force = ["--force"] if job.force else []
        return [*PROGRAM, "train", *source, "--output", str(job.root / job.run), *force]


PLACES = {"local": Local()}
