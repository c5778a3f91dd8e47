"""A run judged and summed up, and its form as bytes: for the cache on disk, and between processes.

An entry counts only for the files it was read from (`evidence.run.lock` states what distinguishes them) and for
the code that read it. What is kept here can be deleted at any time and is never in a run folder; commands never look
here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evidence.index import codec
from evidence.index.summary import RunSummary
from evidence.judge.judgement import RunJudgement
from evidence.run.platform import user_folder


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """A run judged and summed up."""

    judged: RunJudgement
    summary: RunSummary


def encode(entry: IndexEntry) -> bytes | None:
    """Return an entry as JSON, or None if it holds half a surrogate pair."""
    return codec.encode(entry)


def decode(data: bytes) -> IndexEntry | None:
    """Return an entry from JSON, or None if the data is not one."""
    try:
        found: IndexEntry = codec.decode(IndexEntry, data)
    except ValueError:
        return None
    return found


MOST_ROOTS = 20
"""Roots whose entries are kept; those not written for longest go first."""

_PACKAGES = ("evidence", "foreign", "schemas")
"""The packages that decide what an entry states."""


def default_folder() -> Path:
    """Return the folder for such files in the user's cache."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "entries"


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
            kept_entries[name] = signature, data.decode()
    # Nothing kept means that all is read again: slower, and never wrong.
    with contextlib.suppress(OSError, UnicodeEncodeError):
        content = json.dumps({"maker": _maker(), "entries": kept_entries}).encode()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            place = _place(folder, root)
            (Path(part) / place.name).write_bytes(content)
            (Path(part) / place.name).replace(place)
        _forget_oldest(folder)


def read_cached(folder: Path, root: Path, signatures: Mapping[str, str]) -> dict[str, IndexEntry]:
    """Return the entries of a root that this very code kept, by folder name, as far as the signatures are the same."""
    try:
        found = json.loads(_place(folder, root).read_bytes())
        if found["maker"] != _maker():
            return {}
        states = {name: (signature, data.encode()) for name, (signature, data) in found["entries"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {
        name: entry
        for name, (signature, data) in states.items()
        if signatures.get(name) == signature and (entry := decode(data)) is not None
    }


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
    return folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]}.json"


def _forget_oldest(folder: Path) -> None:
    newest_first = sorted(folder.glob("*.json"), key=lambda path: -path.stat().st_mtime_ns)
    for path in newest_first[MOST_ROOTS:]:
        path.unlink()
