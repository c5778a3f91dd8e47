"""One process per run folder, and a way for others to see whether that process is alive.

The operating system drops the lock when its holder dies, however it dies. So a manifest that states `running` in a
folder without a holder belongs to a run that was killed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from evidence import layout
from evidence.layout import LOCK
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import problem_of

_PATIENCE_SECONDS = 0.5
"""How long a new holder waits: `is_alive` in another process holds the lock for an instant to look at it."""


class RunLock:
    """Holds a run folder for this process, as a context manager; the lock file is gone afterwards.

    Raises:
        ProblemError: Another process holds the folder, or its file system has no locks (exit code 2).
        OSError: The lock file cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._path = Path(folder) / LOCK
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (descriptor := _take_lock(self._path)) is None:
            if time.monotonic() > deadline:
                raise ProblemError([_in_use(self._path)], exit_code=2)
            time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            if self.holds():
                remove_held(self._path, self._descriptor)
            else:
                os.close(self._descriptor)
            self._descriptor = None

    def holds(self) -> bool:
        """Return whether the folder is still held: where it was removed and made anew, the lock is another person's."""
        return self._descriptor is not None and _is_file_of(self._descriptor, self._path)


def is_alive(folder: Path) -> bool:
    """Return whether some process holds the run folder now. A folder that cannot be looked into is not held."""
    try:
        descriptor = open_lock(Path(folder) / LOCK, create=False)
    except OSError:
        return False
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)


def refuse_without_locks(folder: Path) -> None:
    """Refuse a folder, or where it is to be made, if a lock cannot be taken there.

    Raises:
        ProblemError: Its file system has no locks (exit code 2).
        OSError: Nothing can be written there.
    """
    there = next(each for each in (folder, *folder.resolve().parents) if each.is_dir())
    probe = there / f".{LOCK}.{os.getpid()}.tmp"
    if (descriptor := _take_lock(probe)) is not None:
        remove_held(probe, descriptor)


def _take_lock(path: Path) -> int | None:
    """Return a descriptor of the lock file with the lock on it, None where another process has it."""
    descriptor = open_lock(path, create=True)
    try:
        # The last holder may have removed the file after we opened it: then this lock guards nothing.
        if lock(descriptor) and _is_file_of(descriptor, path):
            return descriptor
    except NoLocksError as error:
        os.close(descriptor)
        path.unlink()
        what = f"The file system of this folder has no file locks ({error.strerror})."
        raise ProblemError([problem_of("TP724", file=str(path.parent), what=what)], exit_code=2) from error
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_file_of(descriptor: int, path: Path) -> bool:
    """Return whether the open file is the one that stands at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _in_use(path: Path) -> Problem:
    holder = path.read_text("utf-8", "replace").strip() if path.is_file() else ""
    what = f"Another process is writing this run folder{f' (process {holder})' if holder else ''}."
    why = "Two writers would mix their rows, and neither could be graded."
    then = "Wait for that run to end, or give another --output."
    return problem_of("TP090", file=str(path.parent), what=what, why=why, next=then)


_FileState = tuple[str, int, int, int]
"""Name, mtime and ctime in ns since 1970, bytes. Anyone can set a file's mtime back; its ctime no one can."""

_UNREADABLE = -1


class FolderState(NamedTuple):
    """A run's folder at one moment; equal to another where no file was written, added or removed in between.

    Attributes:
        is_held: Whether the process that writes the run is alive.
        files: The state of every file but model weights, sorted by name.
    """

    is_held: bool
    files: tuple[_FileState, ...]

    @property
    def last_written_ns(self) -> int:
        """When a file of the run was written last, in ns since 1970; 0 without files."""
        return max((mtime_ns for _, mtime_ns, _, _ in self.files), default=0)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the run's largest file; 0 without files."""
        return max((size for _, _, _, size in self.files), default=0)

    @property
    def digest(self) -> str:
        """SHA-256 over all of it, hexadecimal."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()


def folder_state(folder: str) -> FolderState:
    """Return the state of a folder; what cannot be read in it has a state of its own, the same each time."""
    files = _files(folder, "")
    is_held = layout.LOCK in [name for name, _, _, _ in files] and is_alive(Path(folder))
    return FolderState(is_held, tuple(files))


def _files(folder: str, prefix: str) -> list[_FileState]:
    found: list[_FileState] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                name = prefix + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # Replaced while it was being looked at; the next look sees the new one.
                    found.append((name, status.st_mtime_ns, status.st_ctime_ns, status.st_size))
                elif name not in layout.WEIGHT_FOLDERS and prefix.count("/") < layout.DEEPEST:
                    found += _files(entry.path, f"{name}/")
    except OSError:
        return [(prefix, _UNREADABLE, _UNREADABLE, _UNREADABLE)]
    found.sort()
    return found


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
