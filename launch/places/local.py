"""This machine: a job is a child process of the worker."""

from __future__ import annotations

from launch.jobs import CONFIG, Job, read_bytes
from launch.places.place import Place
from launch.process import PROGRAM
from schemas.reading import read_yaml


class Local(Place):
    """This machine."""

    title = "This machine"

    def command(self, job: Job) -> list[str]:
        """Return the `trainproof train` command of a job. All its paths are inside the root."""
        resumed = job.root / job.resumes if job.resumes is not None else None
        source = ["--config", str(job.folder / CONFIG)] if resumed is None else ["--resume", str(resumed)]
        force = ["--force"] if job.force else []
        content = read_yaml(read_bytes(job.folder / CONFIG).decode("utf-8", "replace"), file=CONFIG).value
        if isinstance(content, dict) and "phases" in content:
            return [*PROGRAM, "train", "--phases", str(job.folder / CONFIG), "--output", str(job.root), *force]
        return [*PROGRAM, "train", *source, "--output", str(job.root / job.run), *force]


PLACES = {"local": Local()}
