"""What a place is: how the worker of the queue starts a job that runs there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launch.jobs.folder import Job


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where jobs run.

    Attributes:
        command: Program and arguments of the process that does a job. It starts in the job's working folder and stays
            until the run has ended, leaves the run folder `job.root / job.run`, and ends with the run's exit code. At
            SIGINT it has the run sealed and ends.
        has_own_queue: Whether the place decides itself when a job starts, so that none waits here for a device.
    """

    command: Callable[[Job], list[str]]
    has_own_queue: bool = False
