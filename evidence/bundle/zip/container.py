"""The one byte form in which we write a zip, and whether an archive has it.

Headers are made from name, size and checksum alone, entries lie in the order of names, and nothing is compressed. So
the same content gives the same bytes on every machine and with every version of Python and zlib (why:
docs/decisions/bundle-format.md).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from evidence.bundle.format.documents import FileHash
from evidence.bundle.format.rules import FALSE_SIZE
from evidence.bundle.zip.archive import STORED, ArchiveEntry, ArchiveError

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


BLOCK_BYTES = 1 << 20

Progress = Callable[[int, int], None]
"""Told how far work is: bytes done and bytes in all."""


def stream(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the content of an entry in blocks, never more than it declares.

    Raises:
        ArchiveError: TP811 the content is longer or shorter than declared, cannot be unpacked, or has another checksum.
    """
    checksum, done = 0, 0
    blocks = _read_stored(file, entry) if entry.method == STORED else _inflate(file, entry)
    for block in blocks:
        done += len(block)
        if done > entry.size_bytes:
            what = f"The entry declares {entry.size_bytes:,} bytes and holds more."
            raise ArchiveError(FALSE_SIZE, what, entry=entry.name)
        checksum = zlib.crc32(block, checksum)
        yield block
    if done != entry.size_bytes:
        what = f"The entry declares {entry.size_bytes:,} bytes and holds {done:,}."
        raise ArchiveError(FALSE_SIZE, what, entry=entry.name)
    if checksum != entry.crc32:
        raise ArchiveError(
            FALSE_SIZE, "The content does not have the checksum that the entry declares.", entry=entry.name
        )


def hash_entries(
    file: BinaryIO, entries: Sequence[ArchiveEntry], progress: Progress | None = None
) -> dict[str, FileHash]:
    """Return size and hash of every file of an archive, read once.

    Raises:
        ArchiveError: A content is not what its entry declares.
    """
    total, done = sum(entry.size_bytes for entry in entries), 0
    found: dict[str, FileHash] = {}
    for entry in entries:
        digest = hashlib.sha256()
        for block in stream(file, entry):
            digest.update(block)
            done += len(block)
            if progress:
                progress(done, total)
        if not entry.is_directory:
            found[entry.name] = FileHash(path=entry.name, size_bytes=entry.size_bytes, sha256=digest.hexdigest())
    return found


def _read_stored(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the bytes of an entry that is not compressed."""
    file.seek(entry.data_start)
    left = entry.packed_bytes
    while left:
        block = file.read(min(left, BLOCK_BYTES))
        if not block:
            raise ArchiveError(FALSE_SIZE, "The content ends before its declared size.", entry=entry.name)
        left -= len(block)
        yield block


def _inflate(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the bytes of a deflated entry, at most one block at a time however far it expands."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for packed in _read_stored(file, entry):
            rest = packed
            while rest:
                block = unpacker.decompress(rest, BLOCK_BYTES)
                rest = unpacker.unconsumed_tail
                if block:
                    yield block
                if unpacker.eof:
                    break
        if block := unpacker.flush():
            yield block
    except zlib.error:
        raise ArchiveError(FALSE_SIZE, "The content cannot be unpacked.", entry=entry.name) from None
    if not unpacker.eof or unpacker.unused_data:
        raise ArchiveError(FALSE_SIZE, "The packed content does not end where the entry ends.", entry=entry.name)
