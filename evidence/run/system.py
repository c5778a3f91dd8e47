"""What differs between systems, in one place: opening a file that may be a link, and locking it.

Windows has no flock. There a byte beyond the end of the file is locked, since a locked byte cannot be read.
"""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from typing import Any

_BYTE = 1 << 30


def opened(path: Path, flags: int) -> int:
    """Open a file and return its descriptor; a link is not followed, and a pipe is not waited for.

    Raises:
        OSError: It cannot be opened, or is a link.
    """
    no_link: int = getattr(os, "O_NOFOLLOW", 0)
    if not no_link and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | no_link | getattr(os, "O_NONBLOCK", 0), 0o644)


def lock(descriptor: int) -> bool:
    """Lock an open file for this process alone; return False if another process has locked it.

    Raises:
        OSError: The file system has no locks.
    """
    if (fcntl := _module("fcntl")) is None:
        return _locking(descriptor, "LK_NBLCK")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(descriptor: int) -> bool:
    """Return whether another process has locked the file; on a file system without locks, none has."""
    if (fcntl := _module("fcntl")) is None:
        return not (_locking(descriptor, "LK_NBLCK") and _locking(descriptor, "LK_UNLCK"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _locking(descriptor: int, how: str) -> bool:
    """Lock or unlock the byte as Windows does; return False if another process has locked it."""
    msvcrt = import_module("msvcrt")
    os.lseek(descriptor, _BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, getattr(msvcrt, how), 1)
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def _module(name: str) -> Any:
    """Return a module that only some systems have, None where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None
