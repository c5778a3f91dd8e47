"""The content of one zip entry, in blocks, with every declared figure checked."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from evidence.bundle.format.documents import FileHash
from evidence.bundle.format.rules import FALSE_SIZE
from evidence.bundle.zip.archive import STORED, ArchiveEntry, ArchiveError

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
