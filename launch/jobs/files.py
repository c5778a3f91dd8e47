"""Small files of the jobs of a root. None of them is trusted: what cannot be read or has another form is None."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from launch.jobs.process import StartedProcess

_LARGEST_PID = 2**31 - 1
_LATEST = 1e11
"""A time in seconds since 1970; every process was created before it."""


def read_started(path: Path) -> StartedProcess | None:
    """Return the process that a file names, None if it names no process."""
    return started_in(read_object(path))


def started_in(value: Any) -> StartedProcess | None:
    """Return the process that a value from a file names, None if it cannot be one."""
    if not isinstance(value, dict):
        return None
    pid, created, booted = value.get("pid"), _time(value.get("created")), _time(value.get("booted"))
    if type(pid) is not int or not 0 < pid <= _LARGEST_PID or created is None:
        return None
    return StartedProcess(pid=pid, created=created, booted=booted)


def no_link(path: Path) -> Path:
    """Return the path of a file among the jobs; in another user's root it may be a link to any file.

    Raises:
        OSError: It is a link.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a link, which is not followed", str(path))
    return path


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it is missing."""
    try:
        value = json.loads(no_link(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < _LATEST else None


def read_number(path: Path) -> int | None:
    """Return the whole number in a file, or None if it is missing."""
    try:
        return int(no_link(path).read_text("utf-8"))
    except (OSError, ValueError):
        return None
