"""TFRecord framing and the few fields of protocol buffers that TensorBoard's event files need. No TensorFlow.

A record is: length (8 bytes, little endian), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4).
Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_POLYNOMIAL = 0x82F63B78
"""CRC-32C (Castagnoli), bits reversed."""

_MASK_DELTA = 0xA282EAD8

MOST_BYTES = 1 << 26
"""Bytes of one record that is read (64 MiB): a scalar has some dozens, a picture a few million."""


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE = _table()


class BrokenRecordError(ValueError):
    """A record or a message that is cut off or damaged; the records before it are sound."""


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes.

    Example (RFC 3720, B.4):
        >>> hex(crc32c(bytes(32)))
        '0x8a9136aa'
    """
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a CRC as TFRecord stores it: turned right by 15 bits, plus a constant, so that a CRC of CRCs is none."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def records(data: bytes) -> Iterator[bytes]:
    """Yield the data of each record.

    Raises:
        BrokenRecordError: A record is cut off, or a checksum does not match; the records before it were yielded.
    """
    start = 0
    while start < len(data):
        head = data[start : start + 12]
        if len(head) < 12:
            message = f"the last record is cut off at byte {start}"
            raise BrokenRecordError(message)
        length, length_crc = struct.unpack("<QI", head)
        if masked(crc32c(head[:8])) != length_crc:
            message = f"the length of the record at byte {start} does not match its checksum"
            raise BrokenRecordError(message)
        if MOST_BYTES < length <= len(data):
            message = f"the record at byte {start} has {length:,} bytes, more than the {MOST_BYTES:,} that are read"
            raise BrokenRecordError(message)
        body = data[start + 12 : start + 12 + length]
        tail = data[start + 12 + length : start + 16 + length]
        if len(body) < length or len(tail) < 4:
            message = f"the last record is cut off at byte {start}"
            raise BrokenRecordError(message)
        if masked(crc32c(body)) != struct.unpack("<I", tail)[0]:
            message = f"the record at byte {start} does not match its checksum"
            raise BrokenRecordError(message)
        yield body
        start += 16 + length


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a message."""

    number: int
    """Its number."""
    wire: int
    """Wire type: 0 varint, 1 eight bytes, 2 bytes of a stated length, 5 four bytes."""
    whole: int = 0
    """Value of a varint."""
    content: bytes = b""
    """Bytes of the other types."""

    def as_float(self) -> float:
        """Return four or eight bytes as a number."""
        return float(struct.unpack("<d" if self.wire == 1 else "<f", self.content)[0])

    def as_signed(self) -> int:
        """Return a varint as a number with a sign (two's complement of 64 bits)."""
        return self.whole - (1 << 64) if self.whole >> 63 else self.whole


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order.

    Raises:
        BrokenRecordError: The message is cut off, or has a wire type that does not exist.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire = key & 7
        if wire == 0:
            whole, place = _varint(message, place)
            yield Field(number=key >> 3, wire=wire, whole=whole)
            continue
        if wire not in (1, 2, 5):
            message_text = f"a field has the wire type {wire}"
            raise BrokenRecordError(message_text)
        length = 8 if wire == 1 else 4
        if wire == 2:
            length, place = _varint(message, place)
        content = message[place : place + length]
        if len(content) < length:
            message_text = "a field is cut off"
            raise BrokenRecordError(message_text)
        place += length
        yield Field(number=key >> 3, wire=wire, content=content)


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place
    text = "a number is cut off"
    raise BrokenRecordError(text)
