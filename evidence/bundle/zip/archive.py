"""A strict zip reader: it accepts one reading of an archive, or none.

The byte layout is that of APPNOTE.TXT 6.3.10, its sections named at each structure. Python's `zipfile` is not used
for reading: it repairs what it meets (`..` is dropped, the last of two equal names wins, junk before and after is
skipped), so it and another tool may see different files in one archive. Here that is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from evidence.bundle.format.rules import OVERLAP, STRAY_BYTES, TWO_HEADERS, UNPORTABLE_NAME, UNREADABLE
from schemas.problems.rule import Rule
from schemas.problems.words import quantity

STORED, DEFLATED = 0, 8
FLAG_ENCRYPTED, FLAG_DESCRIPTOR, FLAG_STRONG_ENCRYPTION, FLAG_UTF8, FLAG_MASKED = 1, 1 << 3, 1 << 6, 1 << 11, 1 << 13

_END = struct.Struct("<4s4H2LH")  # 4.3.16 End of central directory record
_END64_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_IN_ZIP64 = 0xFFFFFFFF
_ZIP64_EXTRA, _UNICODE_PATH_EXTRA = 0x0001, 0x7075


class ArchiveError(Exception):
    """An archive, or one entry of it, cannot be read in exactly one way."""

    def __init__(self, rule: Rule, what: str, *, entry: str | None = None) -> None:
        super().__init__(what)
        self.rule = rule
        self.what = what
        self.entry = entry


@dataclass(frozen=True, kw_only=True)
class ArchiveEntry:
    """One file or directory of an archive, as its central and local header agree."""

    name: str
    """Path with forward slashes, as written; a directory ends in a slash."""
    method: int
    """Compression method: 0 stored, 8 deflated."""
    flags: int
    """General purpose bit flags."""
    crc32: int
    """Declared checksum of the content."""
    packed_bytes: int
    """Declared size inside the archive."""
    size_bytes: int
    """Declared size of the content."""
    unix_mode: int
    """Unix file type and permissions; 0 where the archive states none."""
    start: int
    """Offset of the local header."""
    data_start: int
    """Offset of the first byte of packed content."""
    end: int
    """Offset after the content and its data descriptor."""

    @property
    def is_directory(self) -> bool:
        """Whether this stands for a folder."""
        return self.name.endswith("/")


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The central directory of an archive: where it is and how many entries it claims."""

    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte."""
    entries: int
    """Entries it claims to have."""


def locate_directory(file: BinaryIO) -> Directory:
    """Return where the central directory lies.

    Raises:
        ArchiveError: TP801 this is not a zip or it is cut off; TP814 it has a comment, or bytes before or after it.
    """
    total = file.seek(0, 2)
    tail_start = max(0, total - _END.size - 0xFFFF)
    file.seek(tail_start)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise ArchiveError(UNREADABLE, "The file has no end-of-archive record: it is not a zip, or its end is cut off.")
    record = _END.unpack_from(tail, at)
    end_at = tail_start + at
    if record[1] or record[2]:
        raise ArchiveError(UNREADABLE, "The archive is one part of several.")
    after = total - end_at - _END.size
    if after or record[7]:
        raise ArchiveError(STRAY_BYTES, f"{after:,} bytes stand after the end of the archive.")
    claimed, size, offset = record[4], record[5], record[6]
    directory_end = end_at
    if 0xFFFF in record[3:5] or _IN_ZIP64 in record[5:7]:
        claimed, size, offset, directory_end = _read_end64(file, end_at)
    before = directory_end - size - offset
    if before > 0:
        raise ArchiveError(STRAY_BYTES, f"{before:,} bytes stand before the archive.")
    if before < 0:
        raise ArchiveError(UNREADABLE, "The list of entries does not lie where the end record says.")
    return Directory(start=offset, end=directory_end, entries=claimed)


def _read_end64(file: BinaryIO, end_at: int) -> tuple[int, int, int, int]:
    """Return entries, size, offset and end of the central directory from the zip64 records before `end_at`."""
    file.seek(max(0, end_at - _END64_LOCATOR.size))
    locator = file.read(_END64_LOCATOR.size)
    if len(locator) < _END64_LOCATOR.size or locator[:4] != b"PK\x06\x07":
        raise ArchiveError(UNREADABLE, "The zip64 locator that the end record needs is missing.")
    record_at = _END64_LOCATOR.unpack(locator)[2]
    if record_at + _END64.size + _END64_LOCATOR.size != end_at:
        raise ArchiveError(UNREADABLE, "The zip64 end record does not lie where its locator says.")
    file.seek(record_at)
    record = _END64.unpack(file.read(_END64.size))
    if record[0] != b"PK\x06\x06" or record[4] or record[5]:
        raise ArchiveError(UNREADABLE, "The zip64 end record cannot be read.")
    return record[7], record[8], record[9], record_at


def read_entries(file: BinaryIO, directory: Directory) -> list[ArchiveEntry]:
    """Return the entries in the order of the central directory, each compared with its local header.

    Raises:
        ArchiveError: TP801 a header cannot be read; TP803 a name has no stated encoding; TP809 entries overlap; TP810
            the two headers of an entry disagree; TP814 bytes that belong to no entry.
    """
    file.seek(directory.start)
    data = file.read(directory.end - directory.start)
    drafts: list[ArchiveEntry] = []
    at = 0
    while at < len(data):
        entry, at = _read_central(data, at)
        drafts.append(entry)
        if len(drafts) > directory.entries:
            raise ArchiveError(UNREADABLE, f"The archive claims {directory.entries:,} entries and lists more.")
    if len(drafts) != directory.entries:
        what = f"The archive claims {directory.entries:,} entries and lists {len(drafts):,}."
        raise ArchiveError(UNREADABLE, what)
    by_place = sorted(range(len(drafts)), key=lambda index: drafts[index].start)
    entries = list(drafts)
    end_of_previous = 0
    for position, index in enumerate(by_place):
        last = position + 1 == len(by_place)
        limit = directory.start if last else drafts[by_place[position + 1]].start
        entries[index] = _with_local(file, drafts[index], end_of_previous, limit)
        end_of_previous = limit
    if not drafts and directory.start:
        raise ArchiveError(STRAY_BYTES, f"{directory.start:,} bytes belong to no entry.")
    return entries


def _read_central(data: bytes, at: int) -> tuple[ArchiveEntry, int]:
    """Return the entry whose central header starts at `at`, and where the next one starts."""
    if len(data) - at < _CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
        raise ArchiveError(UNREADABLE, "The list of entries cannot be read.")
    fields = _CENTRAL.unpack_from(data, at)
    flags, method, crc = fields[3], fields[4], fields[7]
    name_bytes, extra_bytes, comment_bytes, attributes = fields[10], fields[11], fields[12], fields[15]
    at += _CENTRAL.size
    end = at + name_bytes + extra_bytes + comment_bytes
    if end > len(data):
        raise ArchiveError(UNREADABLE, "The list of entries is cut off.")
    name = _decode(data[at : at + name_bytes], flags)
    if comment_bytes:
        raise ArchiveError(STRAY_BYTES, f"The entry has a comment of {comment_bytes:,} bytes.", entry=name)
    extra = data[at + name_bytes : at + name_bytes + extra_bytes]
    size, packed, start = _resolve_zip64(extra, name, (fields[9], fields[8], fields[16]))
    # Where Unix states its modes, other systems state nothing; tools differ in which of them they believe (4.4.2).
    mode = attributes >> 16
    return ArchiveEntry(
        name=name,
        method=method,
        flags=flags,
        crc32=crc,
        packed_bytes=packed,
        size_bytes=size,
        unix_mode=mode,
        start=start,
        data_start=start,
        end=start,
    ), end


def _decode(raw: bytes, flags: int) -> str:
    """Return a name; one outside ASCII must be declared as UTF-8, or tools would disagree on it."""
    try:
        return raw.decode("utf-8" if flags & FLAG_UTF8 else "ascii")
    except UnicodeDecodeError:
        shown = raw.decode("utf-8", "backslashreplace")
        raise ArchiveError(
            UNPORTABLE_NAME, "The name is not in the encoding that the entry declares.", entry=shown
        ) from None


def _resolve_zip64(extra: bytes, name: str, values: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes and the offset, taken from the zip64 extra field (4.5.3) where the header states it."""
    fields: dict[int, bytes] = {}
    for kind, content in _extra_fields(extra, name):
        if kind in fields:
            what = f"The entry carries the extra field 0x{kind:04x} twice, and tools differ in which one they read."
            raise ArchiveError(TWO_HEADERS, what, entry=name)
        fields[kind] = content
    if _UNICODE_PATH_EXTRA in fields:
        raise ArchiveError(TWO_HEADERS, "The entry carries a second name in an extra field.", entry=name)
    wide = fields.get(_ZIP64_EXTRA, b"")
    resolved = list(values)
    for index, value in enumerate(values):
        if value == _IN_ZIP64:
            if len(wide) < 8:
                raise ArchiveError(UNREADABLE, "A zip64 size is missing.", entry=name)
            resolved[index] = int.from_bytes(wide[:8], "little")
            wide = wide[8:]
    if wide:
        what = f"The zip64 field has {quantity(len(wide), 'byte')} that the header does not ask for."
        raise ArchiveError(TWO_HEADERS, what, entry=name)
    return tuple(resolved)


def _extra_fields(extra: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the id and content of each extra field."""
    at = 0
    while at < len(extra):
        if len(extra) - at < 4:
            raise ArchiveError(UNREADABLE, "An extra field is cut off.", entry=name)
        kind, length = struct.unpack_from("<2H", extra, at)
        if at + 4 + length > len(extra):
            raise ArchiveError(UNREADABLE, "An extra field is cut off.", entry=name)
        yield kind, extra[at + 4 : at + 4 + length]
        at += 4 + length


def _with_local(file: BinaryIO, entry: ArchiveEntry, previous_end: int, limit: int) -> ArchiveEntry:
    """Return the entry with the place of its content, after comparing its local header.

    With its data descriptor it must fill all bytes from `previous_end` to `limit`.
    """
    if entry.start != previous_end:
        what = f"{entry.start - previous_end:,} bytes before the entry belong to none."
        raise ArchiveError(STRAY_BYTES, what, entry=entry.name)
    file.seek(entry.start)
    raw = file.read(_LOCAL.size)
    if len(raw) < _LOCAL.size or raw[:4] != b"PK\x03\x04":
        raise ArchiveError(UNREADABLE, "The entry has no header where the list of entries says.", entry=entry.name)
    fields = _LOCAL.unpack(raw)
    name, extra = file.read(fields[9]), file.read(fields[10])
    size, packed = _resolve_zip64(extra, entry.name, (fields[8], fields[7]))
    stated = (_decode(name, fields[2]), fields[2], fields[3], fields[6], packed, size)
    listed = (entry.name, entry.flags, entry.method, entry.crc32, entry.packed_bytes, entry.size_bytes)
    postponed = bool(entry.flags & FLAG_DESCRIPTOR) and stated[3:] == (0, 0, 0)
    if stated[:3] != listed[:3] or (stated[3:] != listed[3:] and not postponed):
        raise ArchiveError(TWO_HEADERS, _disagreement(listed, stated), entry=entry.name)
    data_start = entry.start + _LOCAL.size + fields[9] + fields[10]
    data_end = data_start + entry.packed_bytes
    if data_end > limit:
        raise ArchiveError(OVERLAP, "The entry reaches into the bytes of the next.", entry=entry.name)
    if entry.flags & FLAG_DESCRIPTOR and limit == data_end:
        # Info-ZIP goes on reading for it, into the next entry.
        what = "The entry announces a data descriptor after its content, and there is none."
        raise ArchiveError(TWO_HEADERS, what, entry=entry.name)
    if limit > data_end:
        file.seek(data_end)
        _check_descriptor(file.read(min(limit - data_end, 25)), entry, limit - data_end)
    return ArchiveEntry(**{**vars(entry), "data_start": data_start, "end": limit})


def _disagreement(listed: tuple[object, ...], stated: tuple[object, ...]) -> str:
    """Return a sentence on the first field in which the two headers of an entry differ."""
    names = ("name", "flags", "compression method", "checksum", "packed size", "size")
    field, first, second = next((field, a, b) for field, a, b in zip(names, listed, stated, strict=True) if a != b)
    return f"The list of entries states the {field} {first!r}, the entry itself {second!r}."


def _check_descriptor(raw: bytes, entry: ArchiveEntry, length: int) -> None:
    """Check that the bytes after an entry's content are exactly its data descriptor (4.3.9)."""
    for form in ("<3L", "<L2Q"):
        try:
            body = struct.pack(form, entry.crc32, entry.packed_bytes, entry.size_bytes)
        except struct.error:
            continue  # a size beyond 4 GiB does not fit the short form
        if length == len(raw) and raw in {body, b"PK\x07\x08" + body} and entry.flags & FLAG_DESCRIPTOR:
            return
    raise ArchiveError(STRAY_BYTES, f"{length:,} bytes after the entry belong to none.", entry=entry.name)
