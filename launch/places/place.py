"""Interface of the places where jobs run."""

from __future__ import annotations

import re
import sys
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from evidence.bundle.secrets import hide_secrets
from launch.jobs import Job
from schemas.problems import ProblemError, problem_of

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
DATA = tomllib.loads(Path(__file__).with_name("places.toml").read_text("utf-8"))


class Unreachable(Exception):  # noqa: N818 - a state of the network, not an error of the job
    """A place does not answer at the moment, so the call can be repeated."""


def refuse(code: str, file: str, what: str, fix: str | None = None, *, exit_code: int = 2) -> NoReturn:
    """Raise `ProblemError` for a place that refuses; `fix` replaces that of the rule."""
    raise ProblemError([problem_of(code, file=file, what=hide_secrets(what), next=fix)], exit_code=exit_code)


def find_fix(fixes: Mapping[str, str], said: str) -> str | None:
    """Return what to do about a message, from a table of patterns."""
    return next((fix for words, fix in fixes.items() if re.search(words, said, re.IGNORECASE)), None)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Run to start at a place.

    Attributes:
        working_folder: Start of relative paths in the configuration.
        continues: Reference of the session whose run is continued, or None for a new run.
    """

    run: str
    config: Mapping[str, Any]
    working_folder: Path
    continues: str | None = None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Machine, quota and uploads of a request.

    Attributes:
        target: Name of the machine in `evidence.targets`, or None for another machine.
        session_hours: Length of a session, or None if it is unlimited.
        machine: Description of a machine that is not in `evidence.targets`.
        devices: Number of devices, or None for the number of the target.
        left_hours: What is left of the quota, or None if the place does not say.
        refreshes_at: When the quota is renewed, or an empty text.
        files: Files that are uploaded, by their names at the place.
    """

    account: str
    target: str | None
    session_hours: float | None
    machine: str = ""
    devices: int | None = None
    left_hours: float | None = None
    refreshes_at: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Status:
    """State of a session, and the reason of a failure."""

    state: State
    message: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state not in {"queued", "running"}


class Place(ABC):
    """A place where jobs run.

    The worker starts `command` in the working folder of a job. The process runs until the run has ended, writes the run
    folder `job.root / job.run`, and exits with the exit code of the run. On SIGINT it stops the run.
    """

    title = ""
    """Title on the Launch page. By default, that of its target or its name."""
    has_own_queue = False
    """Whether the place schedules jobs itself, so that jobs do not wait here for a device."""

    @abstractmethod
    def command(self, job: Job) -> list[str]:
        """Return program and arguments of the process for a job."""

    def check(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - most places accept every configuration
        """Refuse a configuration that cannot run here (`ProblemError`), before it is queued."""


class RemotePlace(Place):
    """A place with machines of its own. `launch.remote` takes a job there and back with these methods.

    Each may raise `ProblemError` for good, or `Unreachable` for the moment.
    """

    has_own_queue = True
    keeps_output = False
    """Whether the output of a cancelled session can be fetched."""

    def command(self, job: Job) -> list[str]:
        """Return the command of the process that sends a job, watches it and fetches its run."""
        return [sys.executable, "-m", "launch.remote", str(job.folder)]

    def read_quota(self) -> Offer | None:
        """Check tools and account, and return an offer without files; or None if the place does not limit hours."""
        return None

    @abstractmethod
    def offer(self, request: Request) -> Offer:
        """Check tools, account, files and quota for a request. Nothing is sent."""

    @abstractmethod
    def prepare(self, request: Request, folder: Path) -> None:
        """Write everything that is sent below an empty folder."""

    @abstractmethod
    def submit(self, folder: Path) -> str:
        """Send a prepared folder, start the session, and return its reference."""

    @abstractmethod
    def find(self, folder: Path) -> str | None:
        """Return the reference of a session that a prepared folder started before, or None."""

    @abstractmethod
    def status(self, reference: str) -> Status:
        """Return the state of a session."""

    @abstractmethod
    def logs(self, reference: str) -> Iterator[str]:
        """Yield the lines of a session's log from its beginning, until it ends or the connection is lost."""

    @abstractmethod
    def fetch(self, reference: str, folder: Path) -> None:
        """Download the output of a session: `bundle.zip`, or the `runs/` of a killed session, and `session.log`."""

    @abstractmethod
    def cancel(self, reference: str) -> None:
        """End a session."""

    def release(self, reference: str, *, is_complete: bool) -> None:
        """Remove what a session left behind, now that its run is here. An incomplete run is continued from there."""

    @abstractmethod
    def address(self, reference: str) -> str:
        """Return the page of a session."""
