"""Cache checked runs on disk, in the user's cache folder.

An entry is valid only for the exact state of its files and for the code that wrote it. The cache can be deleted at any
time. Only the dashboard uses it; commands always read the run folders.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from evidence import layout
from evidence.grade import RunJudgement
from evidence.index.summary import RunSummary
from evidence.layout import user_folder
from evidence.lock import is_alive
from evidence.writing import write_text

MOST_ROOTS = 20
"""Number of folders of runs that are cached; those not written for longest are deleted."""

_PACKAGES = ("evidence", "schemas")
"""Packages whose code decides what an entry contains."""

_FileState = tuple[str, int, int, int]
"""Name, mtime and ctime in ns since 1970, and size in bytes. Anyone can set an mtime back, but not a ctime."""

_UNREADABLE = -1


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


def encode(entry: IndexEntry) -> str:
    """Return an entry as JSON in one line; dataclasses become lists of their values."""
    return json.dumps(entry, default=_plain, separators=(",", ":"))


def decode(line: str | bytes) -> IndexEntry | None:
    """Return the entry in a line of JSON, or None if the line is not valid."""
    try:
        entry: IndexEntry = _decoder(IndexEntry)(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    return entry


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(vars(value).values())


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Return a function that turns JSON into a type: a scalar, path, tuple, mapping, or dataclass of such types."""
    arguments = get_args(kind)
    if is_dataclass(kind):
        hints, names = get_type_hints(kind), [field.name for field in fields(kind)]
        decoders = {at: decoder for at, name in enumerate(names) if (decoder := _decoder(hints[name])) is not _same}
        make = cast("Callable[..., Any]", kind)

        def build(values: list[Any]) -> Any:
            for at, decoder in decoders.items():
                values[at] = decoder(values[at])
            return make(**dict(zip(names, values, strict=True)))

        return build
    if kind is Path:
        return _path
    if get_origin(kind) is tuple:
        item = _decoder(arguments[0])
        return tuple if item is _same else lambda values: tuple(map(item, values))
    if type(None) in arguments and (inner := _decoder(arguments[0])) is not _same:
        return lambda value: None if value is None else inner(value)
    return _same


def _same(value: Any) -> Any:
    return value


@lru_cache(maxsize=1)
def _path(name: str) -> Path:
    """Return a path; an entry contains the same one many times."""
    return Path(name)


def default_folder() -> Path:
    """Return the folder of the cache."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "entries"


def save(folder: Path, root: Path, entries: Iterable[tuple[str, str, IndexEntry]]) -> None:
    """Replace the cached entries of a folder of runs; does nothing if the disk cannot be written.

    Args:
        folder: Folder of the cache.
        root: Folder of runs.
        entries: Name of each run folder, digest of its state, and entry.
    """
    lines = [_maker(), *(f"{json.dumps([name, digest])}\t{encode(entry)}" for name, digest, entry in entries)]
    # Without a cache the next process reads everything again: slower, but right.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(_cache_file(folder, root), "\n".join(lines))
        newest_first = sorted(folder.glob("*.jsonl"), key=lambda path: -path.stat().st_mtime_ns)
        for path in newest_first[MOST_ROOTS:]:
            path.unlink()


def load(folder: Path, root: Path, digests: Mapping[str, str]) -> dict[str, IndexEntry]:
    """Return the cached entries whose digests still match, by folder name."""
    try:
        maker, *lines = _cache_file(folder, root).read_text("ascii").split("\n")
    except (OSError, ValueError):
        return {}
    known = {json.dumps([name, digest]): name for name, digest in digests.items()}
    found = {}
    for line in lines if maker == _maker() else ():
        key, _, data = line.partition("\t")
        if key in known and (entry := decode(data)):
            found[known[key]] = entry
    return found


@cache
def _maker() -> str:
    """Return a digest of the code that reads runs: name, size and mtime of its files."""
    home = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(sys.version.encode())
    for package in _PACKAGES:
        for path in sorted((home / package).rglob("*")):
            if path.suffix in (".py", ".json", ".toml"):
                status = path.stat()
                digest.update(f"{path.relative_to(home)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _cache_file(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]}.jsonl"
