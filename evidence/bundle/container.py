"""The canonical zip: same files, same bytes, on every machine and with every version of Python and zlib.

Headers follow from name, size and checksum alone, entries are sorted by name, and nothing is compressed (why:
docs/decisions/bundle-format.md). Section numbers refer to APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

DATE, TIME = 1 << 5 | 1, 0  # 1 January 1980, 00:00: the earliest time a zip can state
UNIX = 3
MODE = 0o100644  # regular file, readable by all
UTF8_FLAG = 1 << 11
LARGE = 0xFFFFFFFF
"""Sizes and offsets from this value on are stored in a zip64 field."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """Path, size and checksums of a file in a bundle; those that were not computed are 0 or ""."""

    name: str
    size_bytes: int
    crc32: int = 0
    sha256: str = ""


def local_header(file: StoredFile) -> bytes:
    """Build the header before the content of a file (4.3.7)."""
    name = file.name.encode("utf-8")
    is_large = file.size_bytes >= LARGE
    size = LARGE if is_large else file.size_bytes
    extra = struct.pack("<2H2Q", 1, 16, file.size_bytes, file.size_bytes) if is_large else b""
    fields = (45 if is_large else 20, UTF8_FLAG, 0, TIME, DATE, file.crc32, size, size, len(name), len(extra))
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields) + name + extra


def central_directory(files: Sequence[StoredFile]) -> bytes:
    """Build everything after the last file: the central directory and the end records (4.3.12 to 4.3.16)."""
    offset, headers = 0, []
    for file in files:
        headers.append(_central_header(file, offset))
        offset += len(local_header(file)) + file.size_bytes
    directory = b"".join(headers)
    count, end64 = len(files), b""
    if offset >= LARGE or count >= 0xFFFF:
        fields = (44, UNIX << 8 | 45, 45, 0, 0, count, count, len(directory), offset)
        end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", *fields)
        end64 += struct.pack("<4sLQL", b"PK\x06\x07", 0, offset + len(directory), 1)
    counts = (min(count, 0xFFFF), min(count, 0xFFFF))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *counts, len(directory), min(offset, LARGE), 0)
    return directory + end64 + end


def _central_header(file: StoredFile, offset: int) -> bytes:
    name = file.name.encode("utf-8")
    wide = [file.size_bytes, file.size_bytes] if file.size_bytes >= LARGE else []
    wide += [offset] if offset >= LARGE else []
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    version, size = 45 if wide else 20, min(file.size_bytes, LARGE)
    fields = (UNIX << 8 | version, version, UTF8_FLAG, 0, TIME, DATE, file.crc32, size, size, len(name), len(extra))
    place = (0, 0, 0, MODE << 16, min(offset, LARGE))
    return struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *fields, *place) + name + extra


def canonical_zip(contents: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the bytes of a canonical zip of files held in memory."""
    files = [
        StoredFile(name=name, size_bytes=len(content), crc32=zlib.crc32(content))
        for name, content in sorted(contents.items())
    ]
    for file in files:
        yield local_header(file) + contents[file.name]
    yield central_directory(files)
