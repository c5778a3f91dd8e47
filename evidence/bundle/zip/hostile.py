"""What is refused in an archive before a single byte of it is written to disk."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from evidence.bundle.format.layout import escape_reason, portable_form, unportable_reason
from evidence.bundle.format.rules import (
    BOMB,
    COLLIDING_NAMES,
    DUPLICATE_NAME,
    ENCRYPTED,
    ESCAPING_NAME,
    FILE_AND_FOLDER,
    SPECIAL_FILE,
    TOO_MANY_ENTRIES,
    UNKNOWN_COMPRESSION,
    UNPORTABLE_NAME,
    refusal,
)
from evidence.bundle.zip.archive import (
    DEFLATED,
    FLAG_ENCRYPTED,
    FLAG_MASKED,
    FLAG_STRONG_ENCRYPTION,
    STORED,
    ArchiveEntry,
    ArchiveError,
    locate_directory,
    read_entries,
)
from schemas.problems.problem import Problem
from schemas.problems.visible import visible

_MANY = 4
"""How many entries of `ArchiveLimits.ratio_floor_bytes` an archive may hold before all together have to be dense."""


@dataclass(frozen=True, kw_only=True)
class ArchiveLimits:
    """How much an archive may claim before it is refused unread."""

    entries: int = 50_000
    """Most entries."""
    total_bytes: int = 64 << 30
    """Most bytes of content in all; a bundle with weights of a 9 B model in float32 stays below."""
    ratio: int = 200
    """Most content per packed byte; text compresses about 10 times, deflate reaches 1,032 at most."""
    ratio_floor_bytes: int = 16 << 20
    """Entries of at most this size may compress as far as they like."""


def harmless_entries(file: BinaryIO, limits: ArchiveLimits | None = None) -> tuple[list[ArchiveEntry], list[Problem]]:
    """Return the entries of an archive and every reason to refuse it; only without reasons may it be unpacked.

    Args:
        file: The archive, opened for reading and seeking.
        limits: What it may claim; the default suits bundles.
    """
    limits = limits or ArchiveLimits()
    try:
        directory = locate_directory(file)
        if directory.entries > limits.entries:
            what = f"The archive has {directory.entries:,} entries."
            expected = f"at most {limits.entries:,}"
            return [], [refusal(TOO_MANY_ENTRIES, "", what, expected=expected)]
        entries = read_entries(file, directory)
    except ArchiveError as error:
        return [], [refusal(error.rule, error.entry or "", error.what)]
    problems = [problem for entry in entries for problem in _entry_problems(entry, limits)]
    problems += _total_problems(entries, limits)
    problems += _clashes(entries)
    return entries, problems


def _entry_problems(entry: ArchiveEntry, limits: ArchiveLimits) -> Iterator[Problem]:
    """Yield what is wrong with one entry by itself."""
    path = entry.name.removesuffix("/")
    if reason := escape_reason(path):
        yield refusal(ESCAPING_NAME, entry.name, reason)
    if reason := unportable_reason(path):
        yield refusal(UNPORTABLE_NAME, entry.name, reason)
    if kind := _special_kind(entry):
        yield refusal(SPECIAL_FILE, entry.name, f"The entry is {kind}.")
    if entry.flags & (FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION | FLAG_MASKED):
        yield refusal(ENCRYPTED, entry.name, "The entry is encrypted.")
    if entry.method not in {STORED, DEFLATED}:
        yield refusal(UNKNOWN_COMPRESSION, entry.name, f"The entry is compressed with method {entry.method}.")
    if entry.size_bytes > limits.ratio_floor_bytes and entry.size_bytes > limits.ratio * entry.packed_bytes:
        what = f"The entry declares {entry.size_bytes:,} bytes packed into {entry.packed_bytes:,}."
        yield refusal(BOMB, entry.name, what, expected=f"at most {limits.ratio} bytes for each packed byte")


def _special_kind(entry: ArchiveEntry) -> str | None:
    """Return what an entry is if it is neither a file nor a folder."""
    kind = stat.S_IFMT(entry.unix_mode)
    if kind == stat.S_IFLNK:
        return "a symbolic link"
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        return "a device, pipe or socket"
    if entry.is_directory and (entry.size_bytes or entry.packed_bytes):
        return "a folder with content"
    if kind == stat.S_IFDIR and not entry.is_directory:
        return "a folder by its mode and a file by its name"
    return None


def _total_problems(entries: Sequence[ArchiveEntry], limits: ArchiveLimits) -> Iterator[Problem]:
    """Yield a problem if all entries together declare too much."""
    total = sum(entry.size_bytes for entry in entries)
    small = [entry for entry in entries if entry.size_bytes <= limits.ratio_floor_bytes]
    size, packed = sum(entry.size_bytes for entry in small), sum(entry.packed_bytes for entry in small)
    if size > _MANY * limits.ratio_floor_bytes and size > limits.ratio * packed:
        what = f"Small entries declare {size:,} bytes together, packed into {packed:,}."
        yield refusal(BOMB, "", what, expected=f"at most {limits.ratio} bytes for each packed byte")
    if total > limits.total_bytes:
        yield refusal(
            BOMB, "", f"The archive declares {total:,} bytes.", expected=f"at most {limits.total_bytes:,} bytes"
        )


def _clashes(entries: Sequence[ArchiveEntry]) -> Iterator[Problem]:
    """Yield entries that would overwrite one another on some file system."""
    names: dict[str, str] = {}
    folders: dict[str, str] = {}
    for entry in entries:
        path = entry.name.removesuffix("/")
        form = portable_form(path)
        if form in names:
            yield _same_name(names[form], entry.name)
        names.setdefault(form, entry.name)
        for folder in _folders_of(path):
            spelled = folders.setdefault(portable_form(folder), folder)
            if spelled != folder:
                what = f"Its folder becomes `{visible(spelled)}` where case or Unicode form do not count."
                yield refusal(COLLIDING_NAMES, entry.name, what)
    for form, folder in folders.items():
        if form in names and not names[form].endswith("/"):
            what = f"The entry is a file, and others lie in a folder `{visible(folder)}`."
            yield refusal(FILE_AND_FOLDER, names[form], what)


def _same_name(earlier: str, later: str) -> Problem:
    """Return the problem of two entries that are one on some file system."""
    if earlier == later:
        return refusal(DUPLICATE_NAME, later, "Two entries have this name.")
    if earlier.removesuffix("/") == later.removesuffix("/"):
        return refusal(FILE_AND_FOLDER, later, "One entry of this name is a file, another a folder.")
    return refusal(
        COLLIDING_NAMES, later, f"The name becomes `{visible(earlier)}` where case or Unicode form do not count."
    )


def _folders_of(path: str) -> Iterator[str]:
    """Yield the folders above a path, outermost first: `a`, `a/b` for `a/b/c`."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth])
