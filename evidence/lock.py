"""Lock a run folder for one process, and check whether that process is alive.

The operating system releases a lock when its process dies. If the manifest says `running` and the folder is not locked,
the run was killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Self

from evidence.layout import LOCK
from schemas.problems import Problem, ProblemError, problem_of

_PATIENCE_SECONDS = 0.5  # `is_alive` in another process takes the lock for an instant
_PROBES = 3  # of `is_alive`, because two processes may probe at the same moment
_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no links, no blocking on pipes


class RunLock:
    """Context manager that locks a run folder for this process and removes the lock file afterwards.

    Raises ProblemError (exit code 2) if another process has locked the folder or its file system does not support
    locks, and OSError if the lock file cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._path = Path(folder) / LOCK
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (descriptor := _acquire(self._path)) is None:
            if time.monotonic() > deadline:
                raise ProblemError([_in_use(self._path)], exit_code=2)
            time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        # Windows locks the first byte, which nobody else can read then.
        os.write(descriptor, f"\n{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            if self.holds():
                _remove(self._path, self._descriptor)
            else:
                os.close(self._descriptor)
            self._descriptor = None

    def holds(self) -> bool:
        """Return whether the folder is still locked, and not removed and created again by another process."""
        return self._descriptor is not None and _is_same_file(self._descriptor, self._path)


def is_alive(folder: Path) -> bool:
    """Return whether a process has locked the run folder; False if that cannot be checked."""
    with contextlib.suppress(OSError), os.fdopen(_open(Path(folder) / LOCK, create=False), "rb", 0) as file:
        for _ in range(_PROBES):
            if _try_lock(file.fileno()):
                return False
            time.sleep(0.005)
        return True
    return False


def refuse_without_locks(folder: Path) -> None:
    """Raise ProblemError (exit code 2) if the file system of a folder, which may not exist yet, supports no locks.

    Raises OSError if the folder cannot be written.
    """
    existing = next(path for path in (folder, *folder.resolve().parents) if path.is_dir())
    probe = existing / f".{LOCK}.{os.getpid()}.tmp"
    if (descriptor := _acquire(probe)) is not None:
        _remove(probe, descriptor)


def _open(path: Path, *, create: bool) -> int:
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    flags = _OPEN_FLAGS | (os.O_CREAT if create else 0)
    try:
        return os.open(path, os.O_RDWR | flags, 0o644)
    except PermissionError:
        if create:
            raise
        return os.open(path, os.O_RDONLY | flags)


def _acquire(path: Path) -> int | None:
    """Return an open, locked lock file, or None if another process holds it."""
    descriptor = _open(path, create=True)
    try:
        is_locked = _try_lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        path.unlink()
        what = f"The file system of this folder does not support file locks ({error.strerror})."
        raise ProblemError([problem_of("TP724", file=str(path.parent), what=what)], exit_code=2) from error
    # The previous holder may have removed the file after it was opened here; then the lock is useless.
    if is_locked and _is_same_file(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _try_lock(descriptor: int) -> bool:
    from filelock import lock_descriptor  # takes a while to import, and most commands meet no lock file

    return lock_descriptor(descriptor, blocking=False)


def _remove(path: Path, descriptor: int) -> None:
    """Remove a held lock file. On Windows the file can only be deleted after it is closed."""
    with contextlib.suppress(PermissionError):
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if os.name == "nt":
        with contextlib.suppress(OSError):
            path.unlink()


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _in_use(path: Path) -> Problem:
    holder = ""
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
        file.seek(1)
        holder = (file.read() or b"").decode("utf-8", "replace").strip()
    what = f"Another process is writing this run folder{f' (process {holder})' if holder else ''}."
    why = "Two writers would mix their rows, and neither run could be graded."
    fix = "Wait for that run to end, or pass another --output."
    return problem_of("TP090", file=str(path.parent), what=what, why=why, next=fix)
