"""Hostile archives, one builder for each kind of attack or damage; what is said of it: tests/cases/zips/<name>.txt.

`raw_zip` writes any archive byte by byte, with every field open to a lie.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

UTF8 = 1 << 11
LINK, DEVICE, FOLDER, PLAIN = 0o120777, 0o020644, 0o040755, 0o100644


@dataclass(frozen=True, kw_only=True)
class Part:
    """One entry, honest by default; `local` and `central` override fields of the two headers."""

    name: str | bytes = "a.txt"
    content: bytes = b"hello\n"
    deflate: bool = False
    mode: int = PLAIN
    made_by: int = 3 << 8 | 20
    flags: int = UTF8
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)
    extra: bytes = b""
    comment: bytes = b""
    after: bytes = b""
    start: int | None = None

    @property
    def packed(self) -> bytes:
        if not self.deflate:
            return self.content
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(self.content) + packer.flush()

    def header(self, overrides: dict[str, Any]) -> dict[str, Any]:
        honest = {
            "name": self.name.encode() if isinstance(self.name, str) else self.name,
            "flags": self.flags,
            "method": 8 if self.deflate else 0,
            "crc32": zlib.crc32(self.content),
            "packed": len(self.packed),
            "size": len(self.content),
        }
        return honest | overrides


def raw_zip(
    parts: Sequence[Part], *, before: bytes = b"", after: bytes = b"", comment: bytes = b"", count: int | None = None
) -> bytes:
    """Return an archive of these parts; `before` is counted in no offset."""
    body, listed = bytearray(), bytearray()
    for part in parts:
        start = len(body) if part.start is None else part.start
        if part.start is None:
            h = part.header(part.local)
            fields = (20, h["flags"], h["method"], 0, 33, h["crc32"], h["packed"], h["size"])
            body += struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields, len(h["name"]), len(part.extra))
            body += h["name"] + part.extra + part.packed + part.after
        h = part.header(part.central)
        fields = (part.made_by, 20, h["flags"], h["method"], 0, 33, h["crc32"], h["packed"], h["size"])
        lengths = (len(h["name"]), len(part.extra), len(part.comment), 0, 0, part.mode << 16, start)
        listed += struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *fields, *lengths)
        listed += h["name"] + part.extra + part.comment
    number = len(parts) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, number, number, len(listed), len(body), len(comment))
    return before + bytes(body + listed) + end + comment + after


def named(*names: str | bytes) -> bytes:
    return raw_zip([Part(name=name) for name in names])


def overlapping() -> bytes:
    """Return two entries of which the second's header is also content of the first (a quoted overlap)."""
    inner = raw_zip([Part(name="b.txt")])
    quoted = inner[: inner.index(b"PK\x01\x02")]
    outer = Part(name="a.txt", content=quoted)
    return raw_zip([outer, Part(name="b.txt", start=30 + len("a.txt"))])


def same_bytes_twice() -> bytes:
    """Return two entries of other names that share one local header."""
    first = Part(name="a.txt", content=b"x" * 100)
    return raw_zip([first, replace(first, start=0)])


def bomb() -> bytes:
    """Return 32 MiB of zeros packed into 32 kB."""
    return raw_zip([Part(name="zeros.bin", content=bytes(32 << 20), deflate=True)])


def declares_beyond_the_file() -> bytes:
    """Return entries that each declare 4 GiB - 2 bytes and hold none of them."""
    huge = 0xFFFFFFFE
    lie = {"size": huge, "packed": huge, "crc32": 0}
    return raw_zip([Part(name=f"{n}.bin", content=b"", local=lie, central=lie) for n in range(20)])


CASES: dict[str, Callable[[], bytes]] = {
    "not_a_zip": lambda: b"This is a text file, not an archive.\n" * 3,
    "empty_file": lambda: b"",
    "cut_off": lambda: named("a.txt", "b.txt")[:-30],
    "cut_off_list": lambda: raw_zip([Part()], count=2),
    "climbs": lambda: named("../evil.txt"),
    "climbs_inside": lambda: named("runs/a/../../../evil.txt"),
    "climbs_backslash": lambda: named("..\\evil.txt"),
    "absolute": lambda: named("/tmp/evil.txt"),
    "drive_letter": lambda: named("C:/evil.txt"),
    "network_share": lambda: named("\\\\host\\share\\evil.txt"),
    "backslash": lambda: named("runs\\a.txt"),
    "control_character": lambda: named("a\nb.txt"),
    "nul_character": lambda: named("a.txt\0.png"),
    "right_to_left": lambda: named("report\u202elmth.exe"),
    "reserved_name": lambda: named("runs/CON"),
    "reserved_name_with_ending": lambda: named("runs/lpt1.txt"),
    "trailing_dot": lambda: named("a.txt."),
    "trailing_space": lambda: named("a.txt "),
    "colon": lambda: named("a.txt:stream"),
    "empty_part": lambda: named("runs//a.txt"),
    "dot_part": lambda: named("./a.txt"),
    "empty_name": lambda: named(""),
    "long_part": lambda: named("x" * 300),
    "unstated_encoding": lambda: raw_zip([Part(name="é.txt", flags=0)]),
    "bad_utf8": lambda: raw_zip([Part(name=b"\xff.txt")]),
    "symbolic_link": lambda: raw_zip([Part(name="link", content=b"/etc/passwd", mode=LINK)]),
    "device": lambda: raw_zip([Part(name="tty", content=b"", mode=DEVICE)]),
    "folder_with_content": lambda: named("runs/"),
    "folder_by_mode": lambda: raw_zip([Part(name="runs", content=b"", mode=FOLDER)]),
    "duplicate": lambda: named("a.txt", "a.txt"),
    "duplicate_of_one_letter": lambda: named("a", "a"),
    "case_collision": lambda: named("README.txt", "readme.TXT"),
    "unicode_collision": lambda: named("caf\u00e9.txt", "cafe\u0301.txt"),
    "folder_case_collision": lambda: named("Runs/a.txt", "runs/b.txt"),
    "file_and_folder": lambda: named("runs", "runs/a.txt"),
    "file_and_folder_entry": lambda: raw_zip([Part(name="runs"), Part(name="runs/", content=b"", mode=FOLDER)]),
    "encrypted": lambda: raw_zip([Part(flags=UTF8 | 1)]),
    "strongly_encrypted": lambda: raw_zip([Part(flags=UTF8 | 1 << 6)]),
    "overlap": overlapping,
    "same_bytes_twice": same_bytes_twice,
    "two_names": lambda: raw_zip([Part(local={"name": b"b.txt"})]),
    "two_sizes": lambda: raw_zip([Part(local={"size": 7})]),
    "descriptor_missing": lambda: raw_zip(
        [Part(flags=UTF8 | 1 << 3, local={"crc32": 0, "packed": 0, "size": 0}), Part(name="b.txt")]
    ),
    "descriptor_missing_at_the_end": lambda: raw_zip([Part(), Part(name="b.txt", flags=UTF8 | 1 << 3)]),
    "two_checksums": lambda: raw_zip([Part(local={"crc32": 1})]),
    "two_methods": lambda: raw_zip([Part(local={"method": 8})]),
    "second_name_in_extra": lambda: raw_zip([Part(extra=struct.pack("<2HBL", 0x7075, 10, 1, 0) + b"b.txt")]),
    "link_by_another_system": lambda: raw_zip(
        [Part(name="link", content=b"/etc/passwd", mode=LINK, made_by=16 << 8 | 20)]
    ),
    "two_wide_offsets": lambda: raw_zip([Part(extra=struct.pack("<2HQ2HQ", 1, 8, 0, 1, 8, 40)), Part(name="b.txt")]),
    "wide_field_unasked": lambda: raw_zip([Part(extra=struct.pack("<2HQ", 1, 8, 6))]),
    "many_small_bombs": lambda: raw_zip(
        [Part(name=f"{number}.bin", content=bytes(15 << 20), deflate=True) for number in range(5)]
    ),
    "lists_more_than_it_claims": lambda: raw_zip([Part(name=f"{number}") for number in range(9)], count=2),
    "larger_than_declared": lambda: raw_zip(
        [Part(content=bytes(1000), deflate=True, local={"size": 10}, central={"size": 10})]
    ),
    "smaller_than_declared": lambda: raw_zip(
        [Part(content=bytes(10), deflate=True, local={"size": 99}, central={"size": 99})]
    ),
    "wrong_checksum": lambda: raw_zip([Part(local={"crc32": 1}, central={"crc32": 1})]),
    "not_deflated": lambda: raw_zip([Part(local={"method": 8}, central={"method": 8})]),
    "bomb": bomb,
    "declares_beyond_the_file": declares_beyond_the_file,
    "too_many_entries": lambda: raw_zip([Part(name=f"{n}", content=b"") for n in range(50_001)]),
    "bytes_before": lambda: raw_zip([Part()], before=b"#!/bin/sh\n"),
    "bytes_after": lambda: raw_zip([Part()], after=b"more"),
    "bytes_between": lambda: raw_zip([Part(after=b"hidden"), Part(name="b.txt")]),
    "archive_comment": lambda: raw_zip([Part()], comment=b"see inside"),
    "entry_comment": lambda: raw_zip([Part(comment=b"see inside")]),
    "second_archive_behind": lambda: raw_zip([Part()]) + raw_zip([Part(name="b.txt")]),
    "unknown_compression": lambda: raw_zip([Part(local={"method": 12}, central={"method": 12})]),
    "no_entries": lambda: raw_zip([]),
    "not_a_bundle": lambda: named("hello.txt"),
}
