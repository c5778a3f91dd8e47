"""What every place can do with a run, and what it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from launch.jobs.folder import ANY_DEVICE, Job


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run that somebody asks for.

    Attributes:
        root: Folder of runs, as an absolute path.
        run: Name of the new run folder in it.
        config: Text of `config.yaml`, checked before. None: the configuration of the run to continue.
        resumes: Name of the run folder that is continued. None: the run starts by `config`.
        force: Whether it runs although the plan says that it does not fit.
        device: cpu, gpu or tpu; `ANY_DEVICE` where that is decided only when it starts.
        working_folder: Where relative paths of the configuration start.
        now: When it was asked for.
    """

    root: Path
    run: str
    config: str | None
    working_folder: Path
    now: datetime
    resumes: str | None = None
    force: bool = False
    device: str = ANY_DEVICE


class Place(Protocol):
    """The functions of a place, in the order in which a run meets them. All but `fetch` return at once."""

    def prepare(self, request: Request) -> Path:
        """Write down what the run needs, in a new folder of the job, and return it; nothing starts.

        Raises:
            OSError: It could not be written.
        """

    def submit(self, request: Request, folder: Path) -> Job:
        """Hand the prepared run over; from here on it runs whatever happens to this process.

        Raises:
            OSError: It could not be handed over.
        """

    def status(self, job: Job) -> Job | None:
        """Return the job as it is now, None if its folder is gone."""

    def logs(self, job: Job, lines: int) -> str:
        """Return the last lines that the run printed, safe to show: no control sequences, no keys."""

    def fetch(self, job: Job) -> Path:
        """Return the run folder in the root, after copying it from the place if it is somewhere else."""

    def cancel(self, job: Job, *, at_once: bool) -> None:
        """Stop the job: politely, so that the run is sealed, or at once. A job that has ended stays as it is.

        Raises:
            OSError: The place could not be told.
        """
