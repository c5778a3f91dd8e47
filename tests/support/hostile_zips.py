"""Hostile archives, one for each kind of attack or damage; most are written in tests/cases/hostile_zips.yaml.

`raw_zip` writes any archive byte by byte, with every field open to a lie.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

UTF8 = 1 << 11
FOLDER, PLAIN = 0o040755, 0o100644


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


def stored(parts: Sequence[dict[str, Any]], **archive: Any) -> bytes:
    """Return an archive of tests/cases/hostile_zips.yaml, whose bytes are Latin-1 there."""

    def in_bytes(fields: dict[str, Any], *names: str) -> dict[str, Any]:
        return fields | {name: fields[name].encode("latin-1") for name in names if name in fields}

    given = [in_bytes(part, "name_bytes", "content", "extra", "comment", "after") for part in parts]
    for part in given:
        part |= {"name": part.pop("name_bytes")} if "name_bytes" in part else {}
        part |= {key: in_bytes(part[key], "name") for key in ("local", "central") if key in part}
    return raw_zip([Part(**part) for part in given], **in_bytes(archive, "before", "after", "comment"))


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


STORED = yaml.safe_load((Path(__file__).parents[1] / "cases" / "hostile_zips.yaml").read_text("utf-8"))
CASES: dict[str, Callable[[], bytes]] = {
    **{name: partial(stored, **archive) for name, archive in STORED.items()},
    "not_a_zip": lambda: b"This is a text file, not an archive.\n" * 3,
    "empty_file": lambda: b"",
    "cut_off": lambda: raw_zip([Part(), Part(name="b.txt")])[:-30],
    "overlap": overlapping,
    "same_bytes_twice": same_bytes_twice,
    "bomb": bomb,
    "many_small_bombs": lambda: raw_zip(
        [Part(name=f"{number}.bin", content=bytes(15 << 20), deflate=True) for number in range(5)]
    ),
    "declares_beyond_the_file": declares_beyond_the_file,
    "too_many_entries": lambda: raw_zip([Part(name=f"{n}", content=b"") for n in range(50_001)]),
    "second_archive_behind": lambda: raw_zip([Part()]) + raw_zip([Part(name="b.txt")]),
    "larger_than_declared": lambda: raw_zip(
        [Part(content=bytes(1000), deflate=True, local={"size": 10}, central={"size": 10})]
    ),
    "smaller_than_declared": lambda: raw_zip(
        [Part(content=bytes(10), deflate=True, local={"size": 99}, central={"size": 99})]
    ),
}
