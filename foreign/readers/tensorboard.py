"""TensorBoard's event files: the scalars, by step, without TensorFlow.

A record of TFRecord is: length (8 bytes, little endian), masked CRC-32C of the length (4), data, masked CRC-32C of the
data (4). Source: tensorflow/core/lib/io/record_writer.h; fields from tensorflow/core/util/event.proto and
tensorflow/core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foreign.readers.keys import metric_of
from foreign.readers.statement import Citation
from foreign.readers.text import finite
from foreign.readers.view import FileReading, MetricRow
from schemas.problems import Problem, problem_of

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


def mask(crc: int) -> int:
    """Return a CRC as TFRecord stores it: turned right by 15 bits, plus a constant, so that a CRC of CRCs differs."""
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
        if mask(crc32c(head[:8])) != length_crc:
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
        if mask(crc32c(body)) != struct.unpack("<I", tail)[0]:
            message = f"the record at byte {start} does not match its checksum"
            raise BrokenRecordError(message)
        yield body
        start += 16 + length


@dataclass(frozen=True, kw_only=True)
class MessageField:
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


def fields(message: bytes) -> Iterator[MessageField]:
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
            yield MessageField(number=key >> 3, wire=wire, whole=whole)
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
        yield MessageField(number=key >> 3, wire=wire, content=content)


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


_STEP, _SUMMARY = 2, 5
_VALUE = 1
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _INT64S = 1, 4, 5, 6, 7, 10

_OF_DTYPE = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""Struct formats of the element types that scalars have: float, double, int32, int64."""


MOST_SCALARS = 2_000_000
"""Scalars of one file that are read."""

_LONGEST_NUMBER = 10
"""Bytes of the longest number of variable length."""


def is_event_file(name: str) -> bool:
    """Return whether a file is an event file, by its name."""
    return "tfevents" in name.rpartition("/")[2]


def read_events(data: bytes, file: str, where: str) -> FileReading:
    """Return the scalars of an event file as rows, one for each step; what is damaged ends the reading.

    Args:
        data: The file's content.
        file: Its path inside the folder.
        where: Its name in problems.
    """
    at_step: dict[int, dict[str, float | None]] = {}
    problems: list[Problem] = []
    read = 0
    try:
        for record in records(data):
            step, scalars = _event(record, most=MOST_SCALARS - read)
            read += len(scalars)
            if scalars:
                at_step.setdefault(step, {}).update(scalars)
    except BrokenRecordError as error:
        what = f"{str(error)[0].upper()}{str(error)[1:]}; the events before it were read."
        problems.append(problem_of("TP521", file=where, what=what))
    rows = [
        MetricRow(values={"step": step, **values}, source=Citation(file=file, pointer=f"step {step}"))
        for step, values in sorted(at_step.items())
    ]
    return FileReading(tool="TensorBoard", metrics=tuple(rows), problems=tuple(problems))


def _event(record: bytes, *, most: int) -> tuple[int, dict[str, float | None]]:
    """Return step and scalars of an event.

    Raises:
        BrokenRecordError: It is damaged, or has more scalars than are read.
    """
    step, scalars = 0, {}
    for field in fields(record):
        if field.number == _STEP and field.wire == 0:
            step = field.as_signed()
        elif field.number == _SUMMARY and field.wire == 2:
            for value in fields(field.content):
                if value.number == _VALUE and value.wire == 2:
                    tag, number = _scalar(value.content)
                    if number is not None:
                        scalars[metric_of(tag)] = finite(number)
                        if len(scalars) > most:
                            message = f"the file has more than the {MOST_SCALARS:,} scalars that are read"
                            raise BrokenRecordError(message)
    return step, scalars


def _scalar(message: bytes) -> tuple[str, float | None]:
    tag, number = "", None
    for field in fields(message):
        if field.number == _TAG and field.wire == 2:
            tag = field.content.decode("utf-8", "replace")
        elif field.number == _SIMPLE and field.wire == 5:
            number = field.as_float()
        elif field.number == _TENSOR and field.wire == 2:
            number = _tensor(field.content)
    return tag, number


def _tensor(message: bytes) -> float | None:
    """Return the number of a tensor with one element; None for any other."""
    dtype = next((field.whole for field in fields(message) if field.number == _DTYPE and field.wire == 0), 0)
    for field in fields(message):
        if field.number == _CONTENT and dtype in _OF_DTYPE:
            return _unpack(_OF_DTYPE[dtype], field.content)
        if field.number in (_FLOATS, _DOUBLES):
            return _unpack("<f" if field.number == _FLOATS else "<d", field.content)
        if field.number in (_INTS, _INT64S):
            return _packed_whole(field)
    return None


def _unpack(form: str, content: bytes) -> float | None:
    return float(struct.unpack(form, content)[0]) if len(content) == struct.calcsize(form) else None


def _packed_whole(field: MessageField) -> float | None:
    if field.wire == 0:
        return float(field.as_signed())
    if not 0 < len(field.content) <= _LONGEST_NUMBER:
        return None  # Of several numbers.
    values: Sequence[MessageField] = list(fields(b"\x08" + field.content))
    return float(values[0].as_signed()) if len(values) == 1 else None
