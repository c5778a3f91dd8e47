"""One process per run folder, and a way for others to see whether that process is alive.

The operating system drops the lock when its holder dies, however it dies. So a manifest that states `running` in a
folder without a holder belongs to a run that was killed.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from evidence.run import layout, platform
from evidence.run.layout import LOCK
from schemas.problems import Problem, ProblemError, problem_of

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
                platform.remove_held(self._path, self._descriptor)
            else:
                os.close(self._descriptor)
            self._descriptor = None

    def holds(self) -> bool:
        """Return whether the folder is still held: where it was removed and made anew, the lock is another person's."""
        return self._descriptor is not None and _is_file_of(self._descriptor, self._path)


def is_alive(folder: Path) -> bool:
    """Return whether some process holds the run folder now. A folder that cannot be looked into is not held."""
    try:
        descriptor = platform.open_lock(Path(folder) / LOCK, create=False)
    except OSError:
        return False
    try:
        return platform.is_locked(descriptor)
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
        platform.remove_held(probe, descriptor)


def _take_lock(path: Path) -> int | None:
    """Return a descriptor of the lock file with the lock on it, None where another process has it."""
    descriptor = platform.open_lock(path, create=True)
    try:
        # The last holder may have removed the file after we opened it: then this lock guards nothing.
        if platform.lock(descriptor) and _is_file_of(descriptor, path):
            return descriptor
    except platform.NoLocksError as error:
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
