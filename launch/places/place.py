"""Interface of a place: how the worker starts a job there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launch.jobs import Job


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place where jobs run.

    Attributes:
        command: Program and arguments of the process for a job. It starts in the working folder of the job, runs until
            the run has ended, writes the run folder `job.root / job.run`, and exits with the exit code of the run. On
            SIGINT it lets the run save a checkpoint and end.
        has_own_queue: Whether the place schedules jobs itself, so that jobs do not wait here for a device.
    """

    command: Callable[[Job], list[str]]
    has_own_queue: bool = False
