"""Everything that operating systems do differently and the evidence needs: locks, links, syncing, processors, homes.

No other file of this package checks which system it runs on. Linux and macOS lock a file with `flock`, Windows one byte
of it; what a system does not offer is left out where it only makes things faster.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_HAS_FLOCK = find_spec("fcntl") is not None
"""Whether whole files can be locked, by several readers or one writer; Windows locks bytes, for one process."""

_LOCKED_BYTE = 1 << 30
"""The byte that stands for the file on Windows: far behind its content, which others must be able to read."""

_TRIES = 5
"""Attempts to look at a lock on Windows, where two that look at the same moment disturb each other."""

_DO_NOT_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""No link is followed, and no call waits for the other end of a pipe."""


class NoLocksError(OSError):
    """The file system of a file has no locks, as Lustre without `flock` or NFS without a lock daemon."""


def open_lock(path: Path, *, create: bool) -> int:
    """Open a lock file, never through a link, and return its descriptor.

    Raises:
        OSError: It is missing, a link, or may not be opened.
    """
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    flags = os.O_RDONLY if _HAS_FLOCK else os.O_RDWR  # A byte is locked for writing.
    return os.open(path, (os.O_RDWR | os.O_CREAT if create else flags) | _DO_NOT_FOLLOW, 0o644)


def lock(descriptor: int) -> bool:
    """Lock an open file for this process until it is closed; False: another process holds it.

    Raises:
        NoLocksError: This file system has no locks.
    """
    if not _HAS_FLOCK:
        return _lock_byte(descriptor, "LK_NBLCK")
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocksError(error.errno, error.strerror) from None
    return True


def is_locked(descriptor: int) -> bool:
    """Return whether another process holds the lock of an open file. No one holds one that cannot be checked."""
    if not _HAS_FLOCK:
        for _ in range(_TRIES):
            if _lock_byte(descriptor, "LK_NBLCK"):
                return not _lock_byte(descriptor, "LK_UNLCK")
            time.sleep(0.01)
        return True
    import fcntl

    try:
        # A shared lock, so that any number may look at once.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock_byte(descriptor: int, how: str) -> bool:
    """Lock or unlock the byte that stands for a file, as `msvcrt` names it; False: another process has it."""
    msvcrt = import_module("msvcrt")
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, getattr(msvcrt, how), 1)
    except (PermissionError, BlockingIOError):
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def remove_held(path: Path, descriptor: int) -> None:
    """Remove a locked file and close it. Windows removes no open file; there another process may be faster."""
    if _HAS_FLOCK:
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if not _HAS_FLOCK:
        with contextlib.suppress(OSError):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Wait until a name in a folder is on the disk; Windows opens no folder, and its rename is durable without this."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fetch(path: str, length: int) -> None:
    """Tell the system that the first bytes of a file will be read; nothing on systems without such a call.

    Raises:
        OSError: there is no such file, or it is a link.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY | _DO_NOT_FOLLOW)
    try:
        os.posix_fadvise(file, 0, length, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)


def user_folder(variable: str, *below_home: str) -> Path:
    """Return the folder of trainproof in the one that a variable of the environment names, else below the home folder.

    A process may have no home, as in a container under a bare user id. Then it is a folder of this user alone in the
    temporary one.
    """
    if stated := os.environ.get(variable):
        return Path(stated) / "trainproof"
    try:
        home = Path.home()
    except RuntimeError:
        home = _temporary_home()
    return home.joinpath(*below_home, "trainproof")


@cache
def _temporary_home() -> Path:
    """Return a folder that no other user can write to; one that goes with this process if its usual name is taken."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        folder = Path(tempfile.gettempdir()) / f"trainproof-{user}"
    except FileNotFoundError:  # nothing can be written anywhere, so nothing is kept
        return Path(os.devnull)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
        return folder
    own = tempfile.mkdtemp(prefix="trainproof-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def give_way() -> None:
    """Let other processes go first, where the system allows it."""
    if hasattr(os, "nice"):
        os.nice(10)
