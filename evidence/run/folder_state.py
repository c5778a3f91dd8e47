"""What changes when a run's folder does: names, times and sizes of its files, and whether a process holds it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from evidence.run import layout
from evidence.run.lock import is_alive

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
