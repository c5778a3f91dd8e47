"""Cache checked runs on disk, in the user's cache folder.

An entry is valid only for the exact state of its files and for the code that wrote it. The cache can be deleted at any
time. Only the dashboard uses it; commands always read the run folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from evidence import layout
from evidence.grade import RunJudgement
from evidence.hashes import make_seal, verify_seal
from evidence.index.summary import RunSummary
from evidence.layout import user_folder
from evidence.lock import is_alive
from evidence.writing import write_bytes

MOST_ROOTS = 20
"""Number of folders of runs that are cached; those not written for longest are deleted."""

_PACKAGES = ("evidence", "schemas")
"""Packages whose code decides what an entry contains."""

_FileState = tuple[str, int, int, int]
"""Name, mtime and ctime in ns since 1970, and size in bytes. Anyone can set an mtime back, but not a ctime."""

_UNREADABLE = -1
_SEAL_BYTES = 64


class FolderState(NamedTuple):
    """State of a run folder; equal states mean that no file was written, added or removed in between.

    Attributes:
        is_held: Whether the process that writes the run is alive.
        files: State of every file except model weights, sorted by name.
    """

    is_held: bool
    files: tuple[_FileState, ...]

    @property
    def last_written_ns(self) -> int:
        """Time of the last write, in ns since 1970, or 0 without files."""
        return max((mtime_ns for _, mtime_ns, _, _ in self.files), default=0)

    @property
    def largest_bytes(self) -> int:
        """Size of the largest file, or 0 without files."""
        return max((size for _, _, _, size in self.files), default=0)

    @property
    def digest(self) -> str:
        """SHA-256 of the state, hexadecimal."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()


def folder_state(folder: str) -> FolderState:
    """Return the state of a folder; a part that cannot be read has a fixed state of its own."""
    files = _file_states(folder, "")
    is_held = layout.LOCK in [name for name, _, _, _ in files] and is_alive(Path(folder))
    return FolderState(is_held, tuple(files))


def _file_states(folder: str, prefix: str) -> list[_FileState]:
    found: list[_FileState] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                name = prefix + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # Replaced while listing; the next call sees the new file.
                    found.append((name, status.st_mtime_ns, status.st_ctime_ns, status.st_size))
                elif name not in layout.WEIGHT_FOLDERS and prefix.count("/") < layout.DEEPEST:
                    found += _file_states(entry.path, f"{name}/")
    except OSError:
        return [(prefix, _UNREADABLE, _UNREADABLE, _UNREADABLE)]
    found.sort()
    return found


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """A checked and summarized run."""

    judged: RunJudgement
    summary: RunSummary


def default_folder() -> Path:
    """Return the folder of the cache."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "entries"


def save(folder: Path, root: Path, entries: Mapping[str, tuple[str, IndexEntry]]) -> None:
    """Replace the cached entries of a folder of runs; does nothing if the disk cannot be written.

    Args:
        folder: Folder of the cache.
        root: Folder of runs.
        entries: Digest of the state, and entry, by the name of the run folder.
    """
    content = pickle.dumps(entries)
    # Without a cache the next process reads everything again: slower, but right.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(_cache_file(folder, root), make_seal(_maker() + content).encode("ascii") + content)
        newest_first = sorted(folder.glob("*.sealed"), key=lambda path: -path.stat().st_mtime_ns)
        for path in newest_first[MOST_ROOTS:]:
            path.unlink()


def load(folder: Path, root: Path, digests: Mapping[str, str]) -> dict[str, IndexEntry]:
    """Return the cached entries whose digests still match, by folder name."""
    try:
        data = _cache_file(folder, root).read_bytes()
    except OSError:
        return {}
    seal, content = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    # A pickle can run code, so only one that this user's own process wrote, with the same code, is loaded.
    if not verify_seal(seal.decode("ascii", "replace"), _maker() + content):
        return {}
    entries: dict[str, tuple[str, IndexEntry]] = pickle.loads(content)  # noqa: S301 - sealed
    return {name: entry for name, (digest, entry) in entries.items() if digests.get(name) == digest}


@cache
def _maker() -> bytes:
    """Return a digest of the code that reads runs: name, size and mtime of its files."""
    home = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(sys.version.encode())
    for package in _PACKAGES:
        for path in sorted((home / package).rglob("*")):
            if path.suffix in (".py", ".json", ".toml"):
                status = path.stat()
                digest.update(f"{path.relative_to(home)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.digest()


def _cache_file(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]}.sealed"
