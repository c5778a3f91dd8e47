"""Small files among the jobs of a root, none of them trusted: what cannot be read, or is no such thing, is None."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from launch.process import Started

_LARGEST_PID = 2**31 - 1
_LATEST = 1e11
"""A time in seconds since 1970 that no process was created after."""


def read_started(path: Path) -> Started | None:
    """Return the process that a file of its own names, None where there is none."""
    return started_in(read_object(path))


def started_in(value: Any) -> Started | None:
    """Return the process that a file names, None where it names none that can be."""
    if not isinstance(value, dict):
        return None
    pid, created, booted = value.get("pid"), _time(value.get("created")), _time(value.get("booted"))
    if type(pid) is not int or not 0 < pid <= _LARGEST_PID or created is None:
        return None
    return Started(pid=pid, created=created, booted=booted)


def no_link(path: Path) -> Path:
    """Return the path of a file among the jobs; in a root of somebody else a link may stand there for any other file.

    Raises:
        OSError: It is a link.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a link, which is not followed", str(path))
    return path


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the object that a file holds, None where it holds none."""
    try:
        value = json.loads(no_link(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < _LATEST else None


def read_number(path: Path) -> int | None:
    """Return the whole number that a file holds, None where it holds none."""
    try:
        return int(no_link(path).read_text("utf-8"))
    except (OSError, ValueError):
        return None
