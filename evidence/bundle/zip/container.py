"""The one byte form in which we write a zip, and whether an archive has it.

Headers are made from name, size and checksum alone, entries lie in the order of names, and nothing is compressed. So
the same content gives the same bytes on every machine and with every version of Python and zlib (why:
docs/decisions/bundle-format.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from evidence.bundle.zip.archive import ArchiveEntry

DATE, TIME = (1980 - 1980) << 9 | 1 << 5 | 1, 0  # 1 January 1980, 00:00: the first moment that a zip can state
UNIX = 3
MODE = 0o100644  # a plain file that its owner may write and all may read
UTF8 = 1 << 11
LARGE = 0xFFFFFFFF
"""From this size or offset on, a zip states it in a zip64 field."""


@dataclass(frozen=True, kw_only=True)
class LocalHeader:
    """What a header states of one file."""

    name: str
    """Path inside the archive."""
    size_bytes: int
    """Size of the content."""
    crc32: int
    """Checksum of the content."""


def local_header(file: LocalHeader) -> bytes:
    """Return the header before a file's content (APPNOTE.TXT 4.3.7)."""
    name = file.name.encode("utf-8")
    large = file.size_bytes >= LARGE
    size = LARGE if large else file.size_bytes
    extra = struct.pack("<2H2Q", 1, 16, file.size_bytes, file.size_bytes) if large else b""
    fields = (_version(large=large), UTF8, 0, TIME, DATE, file.crc32, size, size, len(name), len(extra))
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields) + name + extra


def ending(files: Sequence[LocalHeader]) -> bytes:
    """Return everything after the last file's content: the list of entries and the end records (4.3.12 to 4.3.16)."""
    offset, entries = 0, []
    for file in files:
        entries.append(_central_header(file, offset))
        offset += len(local_header(file)) + file.size_bytes
    listed = b"".join(entries)
    count = len(files)
    end64 = b""
    if offset >= LARGE or count >= 0xFFFF:
        fields = (44, UNIX << 8 | 45, 45, 0, 0, count, count, len(listed), offset)
        end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", *fields)
        end64 += struct.pack("<4sLQL", b"PK\x06\x07", 0, offset + len(listed), 1)
    counts = (min(count, 0xFFFF), min(count, 0xFFFF))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *counts, len(listed), min(offset, LARGE), 0)
    return listed + end64 + end


def has_our_form(file: BinaryIO, entries: Sequence[ArchiveEntry]) -> bool:
    """Return whether every byte of an archive outside its contents is the one that we would have written."""
    stored = [LocalHeader(name=entry.name, size_bytes=entry.size_bytes, crc32=entry.crc32) for entry in entries]
    if [each.name for each in stored] != sorted(each.name for each in stored):
        return False
    for entry, each in zip(entries, stored, strict=True):
        file.seek(entry.start)
        if file.read(entry.data_start - entry.start) != local_header(each):
            return False
    file.seek(entries[-1].end if entries else 0)
    return file.read() == ending(stored)


def _central_header(file: LocalHeader, offset: int) -> bytes:
    name = file.name.encode("utf-8")
    wide = [file.size_bytes, file.size_bytes] if file.size_bytes >= LARGE else []
    wide += [offset] if offset >= LARGE else []
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    version, size = _version(large=bool(wide)), min(file.size_bytes, LARGE)
    fields = (UNIX << 8 | version, version, UTF8, 0, TIME, DATE, file.crc32, size, size, len(name), len(extra))
    place = (0, 0, 0, MODE << 16, min(offset, LARGE))
    return struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *fields, *place) + name + extra


def _version(*, large: bool) -> int:
    """Return the version needed to extract: 2.0, or 4.5 for zip64 (4.4.3.2)."""
    return 45 if large else 20


Progress = Callable[[int, int], None]
"""Told how far work is: bytes done and bytes in all."""
