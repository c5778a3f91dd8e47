"""A process that is surely the one meant: an id alone may by now belong to somebody else's process.

Each signal is sent only after the start time was compared.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import psutil

_CLOCK_SECONDS = 2.0
"""Start times are derived from the time of boot, which the system rounds."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A started process: its id, and when it and the machine were started, in seconds since 1970 by the same clock."""

    pid: int
    created: float
    booted: float | None = None


def started_now(pid: int) -> Started:
    """Return the identity of a process that we have just started and not yet waited for."""
    return Started(pid=pid, created=psutil.Process(pid).create_time(), booted=psutil.boot_time())


def is_alive(started: Started) -> bool:
    """Return whether that very process still runs; one that has ended and waits to be reaped does not."""
    try:
        process = psutil.Process(started.pid)
        return _is_same(process.create_time(), started) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _is_same(created: float, started: Started) -> bool:
    """Return whether a process of the same id, created then, is the one meant.

    Where the clock is set, Linux moves the start of every process along with that of the machine.
    """
    if abs(created - started.created) <= _CLOCK_SECONDS:
        return True
    if started.booted is None:
        return False
    after_boot = created - psutil.boot_time()
    return abs(after_boot - (started.created - started.booted)) <= _CLOCK_SECONDS


def interrupt(started: Started) -> None:
    """Ask the process to end in good order, as Ctrl-C does; it seals its run and may take a while."""
    if is_alive(started):
        try:
            os.kill(started.pid, signal.SIGINT)
            os.kill(started.pid, signal.SIGCONT)  # One that somebody has suspended would never hear it.
        except ProcessLookupError:
            return


def kill(started: Started) -> None:
    """End the process and everything it started, at once."""
    if is_alive(started):
        try:
            # The job leads a session, so its process group has its id and nobody else is in it.
            os.killpg(started.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
