"""Processes of the queue: starting, recognising and stopping them. Every platform call of this package is here.

An id alone may by now belong to another process, so each signal is sent only after the start time was compared.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

_CLOCK_SECONDS = 2.0
"""Start times are derived from the time of boot, which the system rounds."""

ONLY_PARENT_INTERRUPTS = sys.platform == "win32"
"""Windows interrupts a process only from a process on the same console: its worker must do it, not the page."""


@dataclass(frozen=True, kw_only=True)
class StartedProcess:
    """A started process: its id, and when it and the machine were started, in seconds since 1970 by the same clock."""

    pid: int
    created: float
    booted: float | None = None


def start(
    command: Sequence[str],
    *,
    folder: Path | str,
    output: IO[bytes] | int,
    errors: IO[bytes] | int,
    environment: Mapping[str, str] | None = None,
    own_console: bool = True,
    input: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one: it has a session, or on Windows a process group, of its own.

    Args:
        command: Program and arguments.
        folder: Where it starts.
        output: Where its output goes.
        errors: Where its errors go.
        environment: Its environment. None: this one's.
        own_console: On Windows, whether it gets a console without a window; a job shares its worker's, so that the
            worker can interrupt it.
        input: Where its input comes from.

    Raises:
        OSError: It could not be started.
    """
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | (subprocess.CREATE_NO_WINDOW if own_console else 0)
        apart = {"creationflags": flags}
    return subprocess.Popen(command, cwd=folder, env=environment, stdin=input, stdout=output, stderr=errors, **apart)


def started_now(pid: int) -> StartedProcess:
    """Return the identity of a process that we have just started and not yet waited for."""
    return StartedProcess(pid=pid, created=psutil.Process(pid).create_time(), booted=psutil.boot_time())


def is_alive(started: StartedProcess) -> bool:
    """Return whether that very process still runs; one that has ended and waits to be reaped does not."""
    try:
        process = psutil.Process(started.pid)
        return _is_same(process.create_time(), started) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _is_same(created: float, started: StartedProcess) -> bool:
    """Return whether a process of the same id, created then, is the one meant.

    If the clock is set, Linux moves the start of every process along with that of the machine.
    """
    if abs(created - started.created) <= _CLOCK_SECONDS:
        return True
    if started.booted is None:
        return False
    after_boot = created - psutil.boot_time()
    return abs(after_boot - (started.created - started.booted)) <= _CLOCK_SECONDS


def interrupt(started: StartedProcess) -> None:
    """Ask the process to end in good order, as Ctrl-C does; it seals its run and may take a while."""
    if not is_alive(started):
        return
    if sys.platform == "win32":
        with suppress(OSError):  # It has another console: `ONLY_PARENT_INTERRUPTS`.
            os.kill(started.pid, signal.CTRL_BREAK_EVENT)
        return
    with suppress(ProcessLookupError):
        os.kill(started.pid, signal.SIGINT)
        os.kill(started.pid, signal.SIGCONT)  # A suspended process would never receive it.


def kill(started: StartedProcess) -> None:
    """End the process and everything it started, at once."""
    if not is_alive(started):
        return
    if sys.platform == "win32":
        kill_all(started)
        return
    with suppress(ProcessLookupError):
        # The job leads a session, so its process group has its id and no other process is in it.
        os.killpg(started.pid, signal.SIGKILL)


def kill_all(started: StartedProcess) -> None:
    """End the process and everything it started, also what has a session of its own, at once."""
    if is_alive(started):
        with suppress(psutil.NoSuchProcess):
            _kill_from(psutil.Process(started.pid))


def _kill_from(process: psutil.Process) -> None:
    """End a process and what it started; it stands still meanwhile, so that it starts nothing more."""
    with suppress(psutil.NoSuchProcess):
        process.suspend()
        for child in process.children():
            _kill_from(child)
        process.kill()
