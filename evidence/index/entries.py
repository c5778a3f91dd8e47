"""A run judged and summed up, and its form as bytes: for the cache on disk, and between processes.

An entry counts only for the files it was read from (`evidence.lock` states what distinguishes them) and for
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
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from evidence.index.summary import RunSummary
from evidence.judge.judgement import RunJudgement
from evidence.seal import user_folder


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """A run judged and summed up."""

    judged: RunJudgement
    summary: RunSummary


def encode(entry: IndexEntry) -> bytes | None:
    """Return an entry as msgpack; None: it holds a number or half a character that no other reader can hold."""
    try:
        return _encoder().encode(entry)
    except (OverflowError, UnicodeEncodeError):
        return None


def decode(data: bytes) -> IndexEntry | None:
    """Return an entry from its bytes, None where they are not one."""
    try:
        return _decoder().decode(data)
    except msgspec.MsgspecError:
        return None


@cache
def _encoder() -> msgspec.msgpack.Encoder:
    return msgspec.msgpack.Encoder(enc_hook=os.fsencode)


@cache
def _decoder() -> msgspec.msgpack.Decoder[IndexEntry]:
    return msgspec.msgpack.Decoder(IndexEntry, dec_hook=_path)


def _path(kind: type, value: Any) -> Path:
    """Return the path that stands as bytes, the one thing in an entry that msgpack does not know."""
    if kind is not Path or not isinstance(value, bytes):
        what = f"{kind} cannot be read"
        raise TypeError(what)
    return _path_of(value)


@lru_cache(maxsize=1)
def _path_of(name: bytes) -> Path:
    """Return a path, the same one for each time that an entry states it."""
    return Path(os.fsdecode(name))


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
