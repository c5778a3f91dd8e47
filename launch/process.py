"""Start, recognize and stop processes. All calls that depend on the platform are here.

Process ids are reused, so a signal is sent only to a process whose start time is the recorded one.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

HOME = Path(__file__).resolve().parents[1]
"""Folder of the packages. Modules are started from here: `python -m` prefers modules of the current folder, which may
belong to another user."""

PROGRAM = (sys.executable, str(HOME / "trainproof"))
"""Command line of trainproof, by its path. No file of a runs folder decides which program is started."""

ONLY_PARENT_INTERRUPTS = sys.platform == "win32"
"""On Windows, a process can only be interrupted from its own console, so the worker does it instead of the caller."""

_CLOCK_TOLERANCE_SECONDS = 2.0
"""Start times are computed from the boot time, which the system rounds."""

_MAX_PID = 2**31 - 1
_MAX_TIME = 1e11


@dataclass(frozen=True, kw_only=True)
class StartedProcess:
    """Process id with the start time of the process and the boot time of the machine, in seconds since 1970."""

    pid: int
    created: float
    booted: float | None = None


def format_command(arguments: Sequence[str]) -> str:
    """Format arguments of trainproof as a command for a shell."""
    return shlex.join(["trainproof", *arguments])


def start(
    command: Sequence[str],
    *,
    folder: Path | str,
    output: IO[bytes] | int,
    errors: IO[bytes] | int,
    environment: Mapping[str, str] | None = None,
    own_console: bool = True,
    input: IO[bytes] | int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one.

    It gets its own session, or on Windows its own process group and, with `own_console`, its own invisible console.

    Raises:
        OSError: The process cannot be started.
    """
    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | (subprocess.CREATE_NO_WINDOW if own_console else 0)
        options = {"creationflags": flags}
    return subprocess.Popen(command, cwd=folder, env=environment, stdin=input, stdout=output, stderr=errors, **options)


def identify(pid: int) -> StartedProcess:
    """Return the identity of a process that was just started and is not reaped yet."""
    return StartedProcess(pid=pid, created=psutil.Process(pid).create_time(), booted=psutil.boot_time())


def parse_process(value: Any) -> StartedProcess | None:
    """Return the process in a value from a JSON file, or None if it is invalid."""
    if not isinstance(value, dict):
        return None
    times = (value.get("created"), value.get("booted"))
    created, booted = (float(t) if isinstance(t, int | float) and 0 < t < _MAX_TIME else None for t in times)
    pid = value.get("pid")
    if type(pid) is not int or not 0 < pid <= _MAX_PID or created is None:
        return None
    return StartedProcess(pid=pid, created=created, booted=booted)


def is_alive(started: StartedProcess | None) -> bool:
    """Return whether exactly this process is running. A zombie is not."""
    if started is None:
        return False
    try:
        process = psutil.Process(started.pid)
        return _is_same(process.create_time(), started) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _is_same(created: float, started: StartedProcess) -> bool:
    """Compare start times. Setting the clock of a Linux machine shifts its boot time and all start times alike."""
    if abs(created - started.created) <= _CLOCK_TOLERANCE_SECONDS:
        return True
    if started.booted is None:
        return False
    after_boot = created - psutil.boot_time()
    return abs(after_boot - (started.created - started.booted)) <= _CLOCK_TOLERANCE_SECONDS


def interrupt(started: StartedProcess) -> None:
    """Interrupt a process like Ctrl-C. A run then saves a checkpoint and ends, which can take a while."""
    if not is_alive(started):
        return
    if sys.platform == "win32":
        with suppress(OSError):  # it has another console, see ONLY_PARENT_INTERRUPTS
            os.kill(started.pid, signal.CTRL_BREAK_EVENT)
        return
    with suppress(ProcessLookupError):
        os.kill(started.pid, signal.SIGINT)
        os.kill(started.pid, signal.SIGCONT)  # a suspended process would never receive the interrupt


def kill(started: StartedProcess) -> None:
    """Kill a process and all processes that it started, including those with sessions of their own."""
    if is_alive(started):
        with suppress(psutil.NoSuchProcess):  # it ended in the meantime
            _kill_tree(psutil.Process(started.pid))


def _kill_tree(process: psutil.Process) -> None:
    """Suspend a process, so that it starts nothing more, and kill its children, its process group and itself."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        process.suspend()
        for child in process.children():
            _kill_tree(child)
        if sys.platform != "win32" and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
