"""What was read of many runs, kept between processes: a dashboard that is started again lists thousands at once.

An entry counts only for the files it was read from (`evidence.run.folder_state` states what distinguishes them) and for
the code that read it. What is kept here can be deleted at any time and is never in a run folder; commands never look
here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from evidence.index.entries import IndexEntry, decode, encode

MOST_ROOTS = 20
"""Roots whose entries are kept; those not written for longest go first."""

_PACKAGES = ("evidence", "foreign", "schemas")
"""The packages that decide what an entry states."""


class _CacheFile(msgspec.Struct, frozen=True):
    """The file of one root: who wrote it, and by the name of each folder a signature and the entry as msgpack."""

    maker: str
    entries: dict[str, tuple[str, bytes]]


def default_folder() -> Path:
    """Return the folder for such files in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainproof" / "entries"


def keep(folder: Path, root: Path, entries: Iterable[tuple[str, str, IndexEntry]]) -> None:
    """Keep entries in place of those that were kept of the root; without a disk for it, do nothing.

    Args:
        folder: Where to keep them.
        root: The folder of the runs.
        entries: Name of the run folder, signature of its files, and what was read of it.
    """
    kept_entries = {}
    for name, signature, entry in entries:
        # One that cannot be kept is read again the next time.
        if (data := encode(entry)) is not None:
            kept_entries[name] = signature, data
    # Nothing kept means that all is read again: slower, and never wrong.
    with contextlib.suppress(OSError, UnicodeEncodeError):
        content = msgspec.msgpack.encode(_CacheFile(maker=_maker(), entries=kept_entries))
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            place = _place(folder, root)
            (Path(part) / place.name).write_bytes(content)
            (Path(part) / place.name).replace(place)
        _forget_oldest(folder)


def read_cached(folder: Path, root: Path, signatures: Mapping[str, str]) -> dict[str, IndexEntry]:
    """Return the entries of a root that this very code kept, by folder name, as far as the signatures are the same."""
    try:
        found = msgspec.msgpack.decode(_place(folder, root).read_bytes(), type=_CacheFile)
    except (OSError, msgspec.MsgspecError):
        return {}
    if found.maker != _maker():
        return {}
    entries = {}
    for name, (signature, data) in found.entries.items():
        if signatures.get(name) == signature and (entry := decode(data)) is not None:
            entries[name] = entry
    return entries


@cache
def _maker() -> str:
    """Return what changes with the code that reads runs: name, size and time of change of every file of it."""
    home = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(sys.version.encode())
    for package in _PACKAGES:
        for path in sorted((home / package).rglob("*")):
            if path.suffix in (".py", ".json"):
                status = path.stat()
                digest.update(f"{path.relative_to(home)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _place(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]}.msgpack"


def _forget_oldest(folder: Path) -> None:
    newest_first = sorted(folder.glob("*.msgpack"), key=lambda path: -path.stat().st_mtime_ns)
    for path in newest_first[MOST_ROOTS:]:
        path.unlink()
