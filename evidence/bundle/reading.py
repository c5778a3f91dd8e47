"""The canonical zip of a bundle, and reading a bundle from a zip of any origin or the folder it was unpacked into.

The canonical zip is the same everywhere: its headers follow from name, size and checksum, entries are sorted, and
nothing is compressed. Any other zip is read only if it can be read in one way, as Python's `zipfile` does not require
(docs/decisions/bundle-format.md). Section numbers refer to APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import hashlib
import re
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn

from evidence.bundle import contents
from evidence.bundle.contents import HASHES, Progress, StoredFile, bundle_problem
from evidence.layout import holds_run
from schemas.formats import quantity, visible
from schemas.problems import Problem, ProblemError

DATE, TIME = 1 << 5 | 1, 0  # 1 January 1980, 00:00: the earliest time a zip can state
UNIX = 3
MODE = 0o100644  # regular file, readable by all
UTF8_FLAG = 1 << 11
LARGE = 0xFFFFFFFF  # sizes and offsets from this value on are stored in a zip64 field

BLOCK_BYTES = 1 << 20
MAX_ENTRIES = 50_000
MAX_BYTES = 64 << 30  # of an archive; enough for the float32 weights of a 9 B model
MAX_RATIO = 200  # of compression; text reaches about 10, deflate at most 1,032
MAX_EXCESS_BYTES = 16 << 20  # by which all entries together may expand beyond that ratio
MAX_LIST_BYTES = 256 << 20  # of a list or report that is read into memory

_END = struct.Struct("<4s4H2LH")  # 4.3.16 end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q4sLQL")  # 4.3.14 its zip64 form, and 4.3.15 the locator behind it
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_STORED, _DEFLATED = 0, 8
_ENCRYPTED_FLAGS, _DESCRIPTOR_FLAG = 1 | 1 << 6 | 1 << 13, 1 << 3
_ZIP64_EXTRA, _UNICODE_PATH_EXTRA = 0x0001, 0x7075
_SYSTEM_FILE = re.compile(r"^__MACOSX/|(?:^|/)(?:\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class BundleFiles:
    """Files of a bundle by path, without the wrapping folder and operating system files of a repacked zip.

    `problems` are files outside the bundle, and a note if it was repacked. `blocks` yields the content of a file, and
    raises `ProblemError` if it is damaged.
    """

    sizes: Mapping[str, int]
    problems: tuple[Problem, ...]
    blocks: Callable[[str], Iterator[bytes]]

    def content(self, path: str) -> bytes | None:
        """Read a small file into memory, or return None if it is missing."""
        return b"".join(self.blocks(path)) if path in self.sizes else None

    def hashes(self, progress: Progress | None = None) -> dict[str, StoredFile]:
        """Read every file once and return its size and hash by path."""
        total, done = sum(self.sizes.values()), 0
        found: dict[str, StoredFile] = {}
        for path, size in self.sizes.items():
            digest = hashlib.sha256()
            for block in self.blocks(path):
                digest.update(block)
                done += len(block)
                if progress:
                    progress(done, total)
            found[path] = StoredFile(name=path, size_bytes=size, sha256=digest.hexdigest())
        return found

    def write_to(self, folder: Path, is_wanted: Callable[[str], bool]) -> None:
        """Write the wanted files below an empty private folder."""
        for path in filter(is_wanted, self.sizes):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as copy:
                copy.writelines(self.blocks(path))


@contextmanager
def open_bundle(path: Path) -> Iterator[BundleFiles]:
    """Open a zip, or the folder that one was unpacked into, without writing anything.

    Raises an `OSError` if it cannot be read, and a `ProblemError` if it is damaged, unsafe or too large (exit code 1).
    """
    if path.is_dir():
        yield _strip_wrapping(dict(_walk(path)), (), lambda name: read_blocks(path / name), container="folder")
        return
    with path.open("rb") as file:
        entries = read_entries(file)
        by_name = {entry.name: entry for entry in entries}
        sizes = {entry.name: entry.size_bytes for entry in entries if not entry.name.endswith("/")}
        folders = by_name.keys() - sizes.keys()
        for name in folders:
            list(read_content(file, by_name[name]))
        container = "canonical zip" if _is_canonical(file, entries) else "zip"
        yield _strip_wrapping(sizes, folders, lambda name: read_content(file, by_name[name]), container=container)


def is_unpacked_bundle(folder: Path) -> bool:
    """Return whether a folder holds an unpacked bundle, perhaps in one wrapping folder, and is not a run."""
    if holds_run(child.name.lower() for child in folder.iterdir()):
        return False
    return any(any(folder.glob(f"{above}{HASHES}")) for above in ("", "*/", "*/*/"))


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in blocks."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            _unsafe(name, "This is a symbolic link, device, pipe or socket.")
        if path.is_file():
            yield name, path.stat().st_size


def _strip_wrapping(
    sizes: Mapping[str, int], folders: Collection[str], read: Callable[[str], Iterator[bytes]], *, container: str
) -> BundleFiles:
    """Ignore operating system files and one wrapping folder, with one note; report other files outside the bundle.

    `folders` have an entry of their own; `container` is `canonical zip`, `zip` or `folder`.
    """
    lists = [name for name in sizes if f"/{name}".endswith(f"/{HASHES}") and not _SYSTEM_FILE.search(name)]
    outer = min(lists, key=lambda name: name.count("/"), default=HASHES).removesuffix(HASHES)
    listed: Mapping[str, str] = {}
    if sizes.get(outer + HASHES, MAX_LIST_BYTES) < MAX_LIST_BYTES:
        listed = contents.read_hash_lines(b"".join(read(outer + HASHES)).decode("utf-8", "replace")) or {}
    # A run may hold a file with such a name; then the list names it.
    ignored = {name for name in sizes if _SYSTEM_FILE.search(name) and name.removeprefix(outer) not in listed}
    problems = [
        bundle_problem("TP822", name, f"The file is outside the folder `{visible(outer)}` that holds the bundle.")
        for name in sizes.keys() - ignored
        if not name.startswith(outer)
    ]
    parents = {f"{parent}/" for name in sizes for parent in PurePosixPath(name).parents}
    problems += [bundle_problem("TP822", name, "The folder is empty.") for name in folders if name not in parents]
    if container == "zip" or outer or ignored:
        what = "The bundle was unpacked" if container == "folder" else "The bundle was zipped again"
        what += f" in the folder `{visible(outer)}`" if outer else ""
        what += f"; {quantity(len(ignored), 'file')} of the operating system ignored" if ignored else ""
        problems.append(bundle_problem("TP816", "", f"{what}."))
    kept = {name: size for name, size in sizes.items() if name.startswith(outer) and name not in ignored}
    return BundleFiles(
        sizes={name.removeprefix(outer): size for name, size in kept.items()},
        problems=tuple(problems),
        blocks=lambda name: read(outer + name),
    )


@dataclass(frozen=True, kw_only=True)
class ArchiveEntry(StoredFile):
    """One entry of an archive, as its two headers agree.

    `mode` is the Unix file type and permissions, or 0; `start` and `data_start` are the offsets of the local header
    and of the content.
    """

    flags: int
    method: int
    packed_bytes: int
    mode: int
    start: int
    data_start: int = 0


def read_entries(file: BinaryIO) -> list[ArchiveEntry]:
    """Read the entries of an archive in file order, or raise a `ProblemError` with every unsafe or too large one.

    They must fill the file from its first byte to the central directory, without gap or overlap.
    """
    entries, start = _read_directory(file)
    entries = sorted(entries, key=lambda entry: entry.start)
    limits = [*(entry.start for entry in entries), start]
    if limits[0] != 0:
        _damaged(f"The first {limits[0]:,} bytes belong to no entry.")
    entries = [_with_local_header(file, *each) for each in zip(entries, limits[1:], strict=True)]
    if problems := [*_entry_problems(entries), *_name_collisions(entries), *_size_problems(entries)]:
        raise ProblemError(problems)
    return entries


def read_content(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield the content of an entry in blocks; another size or checksum than it declares raises a `ProblemError`."""
    checksum, size = 0, 0
    for block in _read_packed(file, entry) if entry.method == _STORED else _inflate(file, entry):
        size += len(block)
        if size > entry.size_bytes:
            break
        checksum = zlib.crc32(block, checksum)
        yield block
    if size != entry.size_bytes:
        _damaged(f"The content does not have the declared size of {entry.size_bytes:,} bytes.", entry.name)
    if checksum != entry.crc32:
        _damaged("The content does not match its checksum.", entry.name)


def _read_packed(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    file.seek(entry.data_start)
    left = entry.packed_bytes
    while left and (block := file.read(min(left, BLOCK_BYTES))):
        left -= len(block)
        yield block


def _inflate(file: BinaryIO, entry: ArchiveEntry) -> Iterator[bytes]:
    """Yield decompressed content, at most one block at a time however far it expands."""
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for packed in _read_packed(file, entry):
            rest = packed
            while rest and not decompressor.eof:
                yield decompressor.decompress(rest, BLOCK_BYTES)
                rest = decompressor.unconsumed_tail
        yield decompressor.flush()
    except zlib.error:
        _damaged("The content cannot be decompressed.", entry.name)
    if not decompressor.eof or decompressor.unused_data:
        _damaged("The compressed content does not end where the entry ends.", entry.name)


def _damaged(what: str, entry: str = "") -> NoReturn:
    raise ProblemError([bundle_problem("TP801", entry, what)]) from None


def _unsafe(entry: str, what: str) -> NoReturn:
    raise ProblemError([bundle_problem("TP802", entry, what)]) from None


def _read_directory(file: BinaryIO) -> tuple[list[ArchiveEntry], int]:
    """Return the entries as the central directory lists them, and where it starts (4.3.12 to 4.3.16)."""
    end = file.seek(max(0, file.seek(0, 2) - _END.size))
    record = _END.unpack(file.read().ljust(_END.size))
    if record[0] != b"PK\x05\x06" or record[1] or record[2] or record[7]:
        _damaged("This is not a zip, or its end is missing or followed by other bytes.")
    count, size, start = record[4:7]
    if 0xFFFF in record[3:5] or LARGE in record[5:7]:
        end -= _END64.size
        file.seek(max(0, end))
        raw = file.read(_END64.size)
        record = _END64.unpack(raw) if end >= 0 else (b"",)
        if record[0] != b"PK\x06\x06" or record[4:6] != (0, 0) or record[10] != b"PK\x06\x07" or record[12] != end:
            _damaged("The zip64 end record is missing or damaged.")
        count, size, start = record[7:10]
    if start + size != end:
        _damaged("The central directory is not where the end record says; bytes may precede the archive.")
    if count > MAX_ENTRIES:
        what = f"The archive has {count:,} entries."
        raise ProblemError([bundle_problem("TP812", "", what, expected=f"at most {MAX_ENTRIES:,}")])
    file.seek(start)
    data = file.read(size)
    entries = list(_parse_directory(data, count))
    if len(entries) != count:
        _damaged(f"The archive claims {count:,} entries and lists another number.")
    return entries, start


def _parse_directory(data: bytes, count: int) -> Iterator[ArchiveEntry]:
    """Yield the entries of a central directory, at most one more than it claims."""
    at = 0
    while at < len(data) and count >= 0:
        if len(data) - at < _CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
            _damaged("The central directory is damaged.")
        fields = _CENTRAL.unpack_from(data, at)
        name_start = at + _CENTRAL.size
        extra_start = name_start + fields[10]
        at = extra_start + fields[11]
        # The mode is read whatever system is stated as its origin: tools differ in which ones they believe (4.4.2).
        name, extra, mode = data[name_start:extra_start], data[extra_start:at], fields[15] >> 16
        entry = _parse_header(fields[2:10], name, extra, start=fields[16], mode=mode)
        if fields[12] or at > len(data):
            _unsafe(entry.name, "The entry has a comment, or its header is cut off.")
        count -= 1
        yield entry


def _parse_header(
    fields: Sequence[int], raw_name: bytes, extra: bytes, *, start: int = 0, mode: int = 0
) -> ArchiveEntry:
    """Parse the fields that a local and a central header have in common, version to uncompressed size."""
    _, flags, method, _, _, crc32, packed, size = fields
    try:
        name = raw_name.decode("utf-8" if flags & UTF8_FLAG else "ascii")
    except UnicodeDecodeError:
        shown = raw_name.decode("utf-8", "backslashreplace")
        _unsafe(shown, "The name is not in the declared encoding.")
    wide = _read_extra(extra, name)
    values = [size, packed, start]
    for index, value in enumerate(values):
        if value == LARGE:
            if len(wide) < 8:
                _damaged("A zip64 size is missing.", name)
            values[index], wide = int.from_bytes(wide[:8], "little"), wide[8:]
    if wide:
        _unsafe(name, "The zip64 field holds values that the header does not refer to.")
    size, packed, start = values
    return ArchiveEntry(
        name=name, size_bytes=size, crc32=crc32, flags=flags, method=method, packed_bytes=packed, mode=mode, start=start
    )


def _read_extra(extra: bytes, name: str) -> bytes:
    """Return the zip64 extra field (4.5.3) or b""; refuse fields that tools interpret differently."""
    fields: dict[int, bytes] = {}
    while extra:
        kind, length = struct.unpack_from("<2H", extra) if len(extra) >= 4 else (0, len(extra))
        if 4 + length > len(extra):
            _damaged("An extra field is cut off.", name)
        if kind in fields:
            _unsafe(name, f"The extra field 0x{kind:04x} occurs twice, and tools differ in which one they read.")
        fields[kind], extra = extra[4 : 4 + length], extra[4 + length :]
    if _UNICODE_PATH_EXTRA in fields:
        _unsafe(name, "An extra field holds a second name.")
    return fields.get(_ZIP64_EXTRA, b"")


def _with_local_header(file: BinaryIO, entry: ArchiveEntry, limit: int) -> ArchiveEntry:
    """Check an entry against its local header and return it with the place of its content.

    With its data descriptor it must end at `limit`.
    """
    file.seek(entry.start)
    raw = file.read(_LOCAL.size)
    if len(raw) < _LOCAL.size or raw[:4] != b"PK\x03\x04":
        _damaged("The local header is not where the central directory says.", entry.name)
    fields = _LOCAL.unpack(raw)
    local = _parse_header(fields[1:9], file.read(fields[9]), file.read(fields[10]))
    local = replace(local, start=entry.start, mode=entry.mode)
    has_descriptor = bool(entry.flags & _DESCRIPTOR_FLAG)
    if has_descriptor and not (local.crc32 or local.packed_bytes or local.size_bytes):
        local = replace(local, crc32=entry.crc32, packed_bytes=entry.packed_bytes, size_bytes=entry.size_bytes)
    if local != entry:
        _unsafe(entry.name, "The central directory and the local header of the entry disagree.")
    data_start = entry.start + _LOCAL.size + fields[9] + fields[10]
    data_end = data_start + entry.packed_bytes
    if data_end > limit:
        _unsafe(entry.name, "The entry overlaps the next one.")
    file.seek(data_end)
    rest = file.read(min(limit - data_end, 25))
    if rest if not has_descriptor else not _is_descriptor(rest, entry):
        _unsafe(entry.name, "The bytes after the entry are not its data descriptor.")
    return replace(entry, data_start=data_start)


def _is_descriptor(raw: bytes, entry: ArchiveEntry) -> bool:
    """Return whether bytes are exactly the data descriptor of an entry (4.3.9)."""
    values = (entry.crc32, entry.packed_bytes, entry.size_bytes)
    forms = [struct.pack("<L2Q", *values)]
    if max(values) <= LARGE:
        forms.append(struct.pack("<3L", *values))
    return raw.removeprefix(b"PK\x07\x08") in forms


def _is_canonical(file: BinaryIO, entries: Sequence[ArchiveEntry]) -> bool:
    """Return whether every byte outside the contents is as `package` writes it."""
    if list(entries) != sorted(entries, key=lambda entry: entry.name):
        return False
    for entry in entries:
        file.seek(entry.start)
        if file.read(entry.data_start - entry.start) != local_header(entry):
            return False
    file.seek(entries[-1].data_start + entries[-1].packed_bytes if entries else 0)
    return file.read() == central_directory(entries)


def _entry_problems(entries: Sequence[ArchiveEntry]) -> Iterator[Problem]:
    for entry in entries:
        kind, is_folder = stat.S_IFMT(entry.mode), entry.name.endswith("/")
        for is_wrong, what in (
            (kind not in {0, stat.S_IFREG, stat.S_IFDIR}, "The entry is a symbolic link, device, pipe or socket."),
            ((kind == stat.S_IFDIR) > is_folder, "The entry is both a file and a folder."),
            (is_folder and entry.size_bytes, "The entry is a folder with content."),
            (entry.flags & _ENCRYPTED_FLAGS, "The entry is encrypted."),
            (entry.method not in {_STORED, _DEFLATED}, f"Compression method {entry.method} is not supported."),
        ):
            if is_wrong:
                yield bundle_problem("TP802", entry.name, what)
        if reason := contents.name_problem(entry.name.removesuffix("/")):
            yield bundle_problem("TP802", entry.name, reason)


def _name_collisions(entries: Sequence[ArchiveEntry]) -> Iterator[Problem]:
    """Yield entries that would overwrite one another on some file system."""
    spelled: dict[str, str] = {}
    for entry in entries:
        parents = (f"{parent}/" for parent in list(PurePosixPath(entry.name).parents)[-2::-1])
        for name in (*parents, entry.name):
            earlier = spelled.setdefault(contents.portable_form(name.removesuffix("/")), name)
            if earlier != name:
                what = f"`{visible(name)}` and `{visible(earlier)}` are the same path on Windows and macOS."
                yield bundle_problem("TP802", entry.name, what)
    for name, times in Counter(entry.name for entry in entries).items():
        if times > 1:
            yield bundle_problem("TP802", name, "Two entries have this name.")


def _size_problems(entries: Sequence[ArchiveEntry]) -> Iterator[Problem]:
    excess = [max(0, entry.size_bytes - MAX_RATIO * entry.packed_bytes) for entry in entries]
    if sum(excess) > MAX_EXCESS_BYTES:
        worst = entries[excess.index(max(excess))]
        what = f"The entry expands from {worst.packed_bytes:,} to {worst.size_bytes:,} bytes."
        yield bundle_problem("TP812", worst.name, what, expected=f"at most {MAX_RATIO} bytes per compressed byte")
    if (total := sum(entry.size_bytes for entry in entries)) > MAX_BYTES:
        what = f"The archive expands to {total:,} bytes."
        yield bundle_problem("TP812", "", what, expected=f"at most {MAX_BYTES:,} bytes")


def local_header(file: StoredFile) -> bytes:
    """Build the header before the content of a file (4.3.7)."""
    name = file.name.encode("utf-8")
    is_large = file.size_bytes >= LARGE
    size = LARGE if is_large else file.size_bytes
    extra = struct.pack("<2H2Q", 1, 16, file.size_bytes, file.size_bytes) if is_large else b""
    fields = (45 if is_large else 20, UTF8_FLAG, 0, TIME, DATE, file.crc32, size, size, len(name), len(extra))
    return _LOCAL.pack(b"PK\x03\x04", *fields) + name + extra


def central_directory(files: Sequence[StoredFile]) -> bytes:
    """Build everything after the last file: the central directory and the end records (4.3.12 to 4.3.16)."""
    offset, headers = 0, []
    for file in files:
        name = file.name.encode("utf-8")
        wide = [file.size_bytes, file.size_bytes] if file.size_bytes >= LARGE else []
        wide += [offset] if offset >= LARGE else []
        extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        version, size = 45 if wide else 20, min(file.size_bytes, LARGE)
        start = (UNIX << 8 | version, version, UTF8_FLAG, 0, TIME, DATE, file.crc32, size, size, len(name), len(extra))
        place = (0, 0, 0, MODE << 16, min(offset, LARGE))
        headers.append(_CENTRAL.pack(b"PK\x01\x02", *start, *place) + name + extra)
        offset += len(local_header(file)) + file.size_bytes
    directory = b"".join(headers)
    count, end64 = len(files), b""
    if offset >= LARGE or count >= 0xFFFF:
        fields = (44, UNIX << 8 | 45, 45, 0, 0, count, count, len(directory), offset)
        end64 = _END64.pack(b"PK\x06\x06", *fields, b"PK\x06\x07", 0, offset + len(directory), 1)
    count = min(count, 0xFFFF)
    end = _END.pack(b"PK\x05\x06", 0, 0, count, count, len(directory), min(offset, LARGE), 0)
    return directory + end64 + end


def canonical_zip(contents: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the bytes of a canonical zip of files held in memory."""
    files = [
        StoredFile(name=name, size_bytes=len(content), crc32=zlib.crc32(content))
        for name, content in sorted(contents.items())
    ]
    for file in files:
        yield local_header(file) + contents[file.name]
    yield central_directory(files)
