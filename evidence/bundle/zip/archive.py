"""Read a zip that a stranger packed: one reading of it or none, with every reason to refuse it before it is unpacked.

The byte layout is that of APPNOTE.TXT 6.3.10, its sections named at each structure. Python's `zipfile` is not used
for reading: it repairs what it meets (`..` is dropped, the last of two equal names wins, junk before and after is
skipped), so it and another tool may see different files in one archive. Here that is an error.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from evidence.bundle.format.layout import escape_reason, portable_form, unportable_reason
from evidence.bundle.format.rules import refusal
from schemas.formats import quantity, visible
from schemas.problems import Problem

BLOCK_BYTES = 1 << 20
STORED, DEFLATED = 0, 8
ENCRYPTED_FLAGS, DESCRIPTOR_FLAG, UTF8_FLAG = 1 | 1 << 6 | 1 << 13, 1 << 3, 1 << 11

_END = struct.Struct("<4s4H2LH")  # 4.3.16 End of central directory record
_END64_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_IN_ZIP64 = 0xFFFFFFFF
_ZIP64_EXTRA, _UNICODE_PATH_EXTRA = 0x0001, 0x7075
_MANY = 4
"""How many entries of `ArchiveLimits.ratio_floor_bytes` an archive may hold before all together have to be dense."""


class ArchiveError(Exception):
    """An archive, or one entry of it, cannot be read in exactly one way."""

    def __init__(self, code: str, what: str, *, entry: str = "") -> None:
        super().__init__(what)
        self.problem = refusal(code, entry, what)


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


@dataclass(frozen=True, kw_only=True)
class ArchiveEntry:
    """One file or directory of an archive, as its central and local header agree."""

    name: str  # Path with forward slashes, as written; a directory ends in a slash.
    method: int
    flags: int
    crc32: int
    packed_bytes: int
    size_bytes: int
    unix_mode: int  # File type and permissions; 0 where the archive states none.
    start: int  # Offset of the local header.
    data_start: int = 0
    end: int = 0  # Offset after the content and its data descriptor.

    @property
    def is_directory(self) -> bool:
        """Whether this stands for a folder."""
        return self.name.endswith("/")


def safe_entries(file: BinaryIO, limits: ArchiveLimits | None = None) -> tuple[list[ArchiveEntry], list[Problem]]:
    """Return the entries of an archive and every reason to refuse it; only without reasons may it be unpacked.

    Args:
        file: The archive, opened for reading and seeking.
        limits: What it may claim; the default suits bundles.
    """
    limits = limits or ArchiveLimits()
    try:
        count, start, end = _find_directory(file)
        if count > limits.entries:
            what = f"The archive has {count:,} entries."
            return [], [refusal("TP813", "", what, expected=f"at most {limits.entries:,}")]
        entries = _read_entries(file, count, start, end)
    except ArchiveError as error:
        return [], [error.problem]
    problems = [problem for entry in entries for problem in _entry_problems(entry, limits)]
    return entries, [*problems, *_total_problems(entries, limits), *_clashes(entries)]


def stream(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the content of an entry in blocks, never more than it declares.

    Raises:
        ArchiveError: TP811 the content is longer or shorter than declared, cannot be unpacked, or has another checksum.
    """
    checksum, done = 0, 0
    for block in _read_stored(file, entry) if entry.method == STORED else _inflate(file, entry):
        done += len(block)
        if done > entry.size_bytes:
            what = f"The entry declares {entry.size_bytes:,} bytes and holds more."
            msg = "TP811"
            raise ArchiveError(msg, what, entry=entry.name)
        checksum = zlib.crc32(block, checksum)
        yield block
    if done != entry.size_bytes:
        what = f"The entry declares {entry.size_bytes:,} bytes and holds {done:,}."
        msg = "TP811"
        raise ArchiveError(msg, what, entry=entry.name)
    if checksum != entry.crc32:
        what = "The content does not have the checksum that the entry declares."
        msg = "TP811"
        raise ArchiveError(msg, what, entry=entry.name)


def _read_stored(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the bytes of an entry that is not compressed."""
    file.seek(entry.data_start)
    left = entry.packed_bytes
    while left:
        block = file.read(min(left, BLOCK_BYTES))
        if not block:
            msg = "TP811"
            raise ArchiveError(msg, "The content ends before its declared size.", entry=entry.name)
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
        msg = "TP811"
        raise ArchiveError(msg, "The content cannot be unpacked.", entry=entry.name) from None
    if not unpacker.eof or unpacker.unused_data:
        msg = "TP811"
        raise ArchiveError(msg, "The packed content does not end where the entry ends.", entry=entry.name)


def _find_directory(file: BinaryIO) -> tuple[int, int, int]:
    """Return how many entries the central directory claims, and where it begins and ends."""
    total = file.seek(0, 2)
    tail_start = max(0, total - _END.size - 0xFFFF)
    file.seek(tail_start)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        msg = "TP801"
        raise ArchiveError(msg, "The file has no end-of-archive record: it is not a zip, or its end is cut off.")
    record = _END.unpack_from(tail, at)
    end = tail_start + at
    if record[1] or record[2]:
        msg = "TP801"
        raise ArchiveError(msg, "The archive is one part of several.")
    if (after := total - end - _END.size) or record[7]:
        msg = "TP814"
        raise ArchiveError(msg, f"{after:,} bytes stand after the end of the archive.")
    count, size, start = record[4:7]
    if 0xFFFF in record[3:5] or _IN_ZIP64 in record[5:7]:
        count, size, start, end = _read_end64(file, end)
    if (before := end - size - start) > 0:
        msg = "TP814"
        raise ArchiveError(msg, f"{before:,} bytes stand before the archive.")
    if before < 0:
        msg = "TP801"
        raise ArchiveError(msg, "The list of entries does not lie where the end record says.")
    return count, start, end


def _read_end64(file: BinaryIO, end: int) -> tuple[int, int, int, int]:
    """Return entries, size, offset and end of the central directory from the zip64 records before `end`."""
    file.seek(max(0, end - _END64_LOCATOR.size))
    locator = file.read(_END64_LOCATOR.size)
    if len(locator) < _END64_LOCATOR.size or locator[:4] != b"PK\x06\x07":
        msg = "TP801"
        raise ArchiveError(msg, "The zip64 locator that the end record needs is missing.")
    record_at = _END64_LOCATOR.unpack(locator)[2]
    if record_at + _END64.size + _END64_LOCATOR.size != end:
        msg = "TP801"
        raise ArchiveError(msg, "The zip64 end record does not lie where its locator says.")
    file.seek(record_at)
    record = _END64.unpack(file.read(_END64.size))
    if record[0] != b"PK\x06\x06" or record[4] or record[5]:
        msg = "TP801"
        raise ArchiveError(msg, "The zip64 end record cannot be read.")
    return record[7], record[8], record[9], record_at


def _read_entries(file: BinaryIO, count: int, start: int, end: int) -> list[ArchiveEntry]:
    """Return the entries in the order in which they lie in the file, each compared with its local header."""
    file.seek(start)
    data, at = file.read(end - start), 0
    entries: list[ArchiveEntry] = []
    while at < len(data):
        entry, at = _read_central(data, at)
        entries.append(entry)
        if len(entries) > count:
            msg = "TP801"
            raise ArchiveError(msg, f"The archive claims {count:,} entries and lists more.")
    if len(entries) != count:
        msg = "TP801"
        raise ArchiveError(msg, f"The archive claims {count:,} entries and lists {len(entries):,}.")
    if not entries and start:
        msg = "TP814"
        raise ArchiveError(msg, f"{start:,} bytes belong to no entry.")
    entries.sort(key=lambda entry: entry.start)
    limits = [*(entry.start for entry in entries[1:]), start]
    begins = [0, *limits]
    return [_with_local(file, *each) for each in zip(entries, begins, limits, strict=False)]


def _read_central(data: bytes, at: int) -> tuple[ArchiveEntry, int]:
    """Return the entry whose central header starts at `at`, and where the next one starts."""
    if len(data) - at < _CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
        msg = "TP801"
        raise ArchiveError(msg, "The list of entries cannot be read.")
    fields = _CENTRAL.unpack_from(data, at)
    name_end = at + _CENTRAL.size + fields[10]
    extra_end = name_end + fields[11]
    if extra_end + fields[12] > len(data):
        msg = "TP801"
        raise ArchiveError(msg, "The list of entries is cut off.")
    name = _decode(data[at + _CENTRAL.size : name_end], fields[3])
    if fields[12]:
        msg = "TP814"
        raise ArchiveError(msg, f"The entry has a comment of {fields[12]:,} bytes.", entry=name)
    size, packed, start = _resolve_zip64(data[name_end:extra_end], name, (fields[9], fields[8], fields[16]))
    declared = {"flags": fields[3], "method": fields[4], "crc32": fields[7], "packed_bytes": packed, "size_bytes": size}
    # Where Unix states its modes, other systems state nothing; tools differ in which of them they believe (4.4.2).
    return ArchiveEntry(name=name, **declared, unix_mode=fields[15] >> 16, start=start), extra_end


def _decode(raw: bytes, flags: int) -> str:
    """Return a name; one outside ASCII must be declared as UTF-8, or tools would disagree on it."""
    try:
        return raw.decode("utf-8" if flags & UTF8_FLAG else "ascii")
    except UnicodeDecodeError:
        what, shown = (
            "The name is not in the encoding that the entry declares.",
            raw.decode("utf-8", "backslashreplace"),
        )
        msg = "TP803"
        raise ArchiveError(msg, what, entry=shown) from None


def _resolve_zip64(extra: bytes, name: str, values: Sequence[int]) -> list[int]:
    """Return the sizes and the offset, taken from the zip64 extra field (4.5.3) where the header states it."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(extra):
        kind, length = struct.unpack_from("<2H", extra, at) if len(extra) - at >= 4 else (0, len(extra))
        if at + 4 + length > len(extra):
            msg = "TP801"
            raise ArchiveError(msg, "An extra field is cut off.", entry=name)
        if kind in fields:
            what = f"The entry carries the extra field 0x{kind:04x} twice, and tools differ in which one they read."
            msg = "TP810"
            raise ArchiveError(msg, what, entry=name)
        fields[kind] = extra[at + 4 : at + 4 + length]
        at += 4 + length
    if _UNICODE_PATH_EXTRA in fields:
        msg = "TP810"
        raise ArchiveError(msg, "The entry carries a second name in an extra field.", entry=name)
    wide = fields.get(_ZIP64_EXTRA, b"")
    resolved = list(values)
    for index, value in enumerate(values):
        if value == _IN_ZIP64:
            if len(wide) < 8:
                msg = "TP801"
                raise ArchiveError(msg, "A zip64 size is missing.", entry=name)
            resolved[index] = int.from_bytes(wide[:8], "little")
            wide = wide[8:]
    if wide:
        what = f"The zip64 field has {quantity(len(wide), 'byte')} that the header does not ask for."
        msg = "TP810"
        raise ArchiveError(msg, what, entry=name)
    return resolved


def _with_local(file: BinaryIO, entry: ArchiveEntry, begin: int, limit: int) -> ArchiveEntry:
    """Return the entry with the place of its content, after comparing its local header.

    With its data descriptor it must fill all bytes from `begin` to `limit`.
    """
    if entry.start != begin:
        what = f"{entry.start - begin:,} bytes before the entry belong to none."
        msg = "TP814"
        raise ArchiveError(msg, what, entry=entry.name)
    file.seek(entry.start)
    raw = file.read(_LOCAL.size)
    if len(raw) < _LOCAL.size or raw[:4] != b"PK\x03\x04":
        msg = "TP801"
        raise ArchiveError(msg, "The entry has no header where the list of entries says.", entry=entry.name)
    fields = _LOCAL.unpack(raw)
    name, extra = file.read(fields[9]), file.read(fields[10])
    size, packed = _resolve_zip64(extra, entry.name, (fields[8], fields[7]))
    stated = (_decode(name, fields[2]), fields[2], fields[3], fields[6], packed, size)
    listed = (entry.name, entry.flags, entry.method, entry.crc32, entry.packed_bytes, entry.size_bytes)
    postponed = bool(entry.flags & DESCRIPTOR_FLAG) and stated[3:] == (0, 0, 0)
    if stated[:3] != listed[:3] or (stated[3:] != listed[3:] and not postponed):
        kinds = ("name", "flags", "compression method", "checksum", "packed size", "size")
        kind, first, second = next((kind, a, b) for kind, a, b in zip(kinds, listed, stated, strict=True) if a != b)
        what = f"The list of entries states the {kind} {first!r}, the entry itself {second!r}."
        msg = "TP810"
        raise ArchiveError(msg, what, entry=entry.name)
    data_start = entry.start + _LOCAL.size + fields[9] + fields[10]
    data_end = data_start + entry.packed_bytes
    if data_end > limit:
        msg = "TP809"
        raise ArchiveError(msg, "The entry reaches into the bytes of the next.", entry=entry.name)
    if entry.flags & DESCRIPTOR_FLAG and limit == data_end:
        # Info-ZIP goes on reading for it, into the next entry.
        what = "The entry announces a data descriptor after its content, and there is none."
        msg = "TP810"
        raise ArchiveError(msg, what, entry=entry.name)
    file.seek(data_end)
    if limit > data_end and not _is_descriptor(file.read(min(limit - data_end, 25)), entry):
        what = f"{limit - data_end:,} bytes after the entry belong to none."
        msg = "TP814"
        raise ArchiveError(msg, what, entry=entry.name)
    return replace(entry, data_start=data_start, end=limit)


def _is_descriptor(raw: bytes, entry: ArchiveEntry) -> bool:
    """Return whether the bytes after an entry's content are exactly its data descriptor (4.3.9)."""
    sizes = (entry.crc32, entry.packed_bytes, entry.size_bytes)
    forms = [struct.pack("<L2Q", *sizes)]
    if max(sizes) < 1 << 32:  # a larger size does not fit the short form
        forms.append(struct.pack("<3L", *sizes))
    return bool(entry.flags & DESCRIPTOR_FLAG) and raw.removeprefix(b"PK\x07\x08") in forms


def _entry_problems(entry: ArchiveEntry, limits: ArchiveLimits) -> Iterator[Problem]:
    """Yield what is wrong with one entry by itself."""
    path = entry.name.removesuffix("/")
    if reason := escape_reason(path):
        yield refusal("TP802", entry.name, reason)
    if reason := unportable_reason(path):
        yield refusal("TP803", entry.name, reason)
    if kind := _special_kind(entry):
        yield refusal("TP804", entry.name, f"The entry is {kind}.")
    if entry.flags & ENCRYPTED_FLAGS:
        yield refusal("TP808", entry.name, "The entry is encrypted.")
    if entry.method not in {STORED, DEFLATED}:
        yield refusal("TP815", entry.name, f"The entry is compressed with method {entry.method}.")
    if entry.size_bytes > limits.ratio_floor_bytes and entry.size_bytes > limits.ratio * entry.packed_bytes:
        what = f"The entry declares {entry.size_bytes:,} bytes packed into {entry.packed_bytes:,}."
        yield refusal("TP812", entry.name, what, expected=f"at most {limits.ratio} bytes for each packed byte")


def _special_kind(entry: ArchiveEntry) -> str | None:
    """Return what an entry is if it is neither a file nor a folder."""
    kind = stat.S_IFMT(entry.unix_mode)
    if kind == stat.S_IFLNK:
        return "a symbolic link"
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        return "a device, pipe or socket"
    if entry.is_directory and entry.size_bytes:  # Java deflates the nothing that a folder holds to two bytes.
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
        yield refusal("TP812", "", what, expected=f"at most {limits.ratio} bytes for each packed byte")
    if total > limits.total_bytes:
        what = f"The archive declares {total:,} bytes."
        yield refusal("TP812", "", what, expected=f"at most {limits.total_bytes:,} bytes")


def _clashes(entries: Sequence[ArchiveEntry]) -> Iterator[Problem]:
    """Yield entries that would overwrite one another on some file system."""
    names: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in (entry.name for entry in entries):
        path = name.removesuffix("/")
        earlier = names.setdefault(portable_form(path), name)
        if earlier != name and earlier.removesuffix("/") == path:
            yield refusal("TP807", name, "One entry of this name is a file, another a folder.")
        elif earlier != name:
            what = f"The name becomes `{visible(earlier)}` where case or Unicode form do not count."
            yield refusal("TP806", name, what)
        for depth in range(1, path.count("/") + 1):
            folder = path.rsplit("/", depth)[0]
            spelled = folders.setdefault(portable_form(folder), folder)
            if spelled != folder:
                what = f"Its folder becomes `{visible(spelled)}` where case or Unicode form do not count."
                yield refusal("TP806", name, what)
    for name, count in Counter(entry.name for entry in entries).items():
        if count > 1:
            yield refusal("TP805", name, "Two entries have this name.")
    for form, folder in folders.items():
        if form in names and not names[form].endswith("/"):
            what = f"The entry is a file, and others lie in a folder `{visible(folder)}`."
            yield refusal("TP807", names[form], what)
