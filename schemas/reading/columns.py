"""The rows of metrics.jsonl as columns: a million rows are read once, kept as text, and counted with as arrays.

`read_table` is a fast yes, as `row_types` is: it takes whole text in which every line is beyond doubt right and written
as trainproof writes it. For any other text it gives None, and `rows` reads line by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from schemas.catalog import schema
from schemas.reading.row_types import fixed_quotation_marks, struct_of
from schemas.reading.rows import TABLE_KIND
from schemas.reading.times import moment

Array = NDArray[np.float64]

CHUNK_BYTES = 2**20
"""Text decoded at a time, so that a large file never exists as Python objects as a whole."""

_TIMES = {
    len(form): np.frombuffer(form, dtype=np.uint8)
    for form in (b"0000-00-00T00:00:00+00:00", b"0000-00-00T00:00:00.000+00:00", b"0000-00-00T00:00:00.000000+00:00")
}
"""Times as they are written, to the second, millisecond or microsecond, by their length; 0 stands for any digit."""
_LINE_END, _MARK = ord("\n"), ord('"')
_OFFSET = len("+00:00")
_FIRST_YEAR = np.datetime64("0001-01-01")


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """One array for each field of a metric row, all `[rows]` float64; NaN where a row states null.

    `seconds` is the field `time` in seconds since 1970, exact to the microsecond from 1685 to 2255; NaN for a day that
    no calendar has.
    """

    step: Array
    tokens_seen: Array
    loss: Array
    learning_rate: Array
    grad_norm: Array
    step_seconds: Array
    tokens_per_second: Array
    device_memory_bytes: Array
    seconds: Array


NUMBERS = tuple(name for name in Columns.__dataclass_fields__ if name != "seconds")
"""The fields of a metric row that are numbers, in the order of the schema."""


class Table(Sequence[dict[str, Any]]):
    """Metric rows that were all right: a sequence of rows, each decoded when it is asked for, and their columns.

    Args:
        text: The lines.
        ends: `[rows]` where in the text the newline of each row stands.
        columns: The numbers of the rows.
    """

    def __init__(self, text: bytes, ends: NDArray[np.int64], columns: Columns) -> None:
        self.columns = columns
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return len(self.columns.step)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(msgspec.json.Decoder(dict[str, Any]).decode_lines(self._text))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        start = self._ends[place - 1] + 1 if place else 0
        return msgspec.json.decode(self._text[start : self._ends[place]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


def columns_of(rows: Sequence[dict[str, Any]]) -> Columns:
    """Return the columns of metric rows that are valid each; those of a `Table` are there already."""
    if isinstance(rows, Table):
        return rows.columns
    numbers = {name: column(rows, name) for name in NUMBERS}
    moments = (moment(row["time"]) for row in rows)
    seconds = np.array([math.nan if at is None else at.timestamp() for at in moments], dtype=np.float64)
    return Columns(**numbers, seconds=seconds)


def column(rows: Sequence[dict[str, Any]], name: str) -> Array:
    """Return one number of every row, `[rows]`; NaN for null."""
    if isinstance(rows, Table):
        return cast("Array", getattr(rows.columns, name))
    return np.array([row[name] for row in rows], dtype=np.float64)


def read_table(text: bytes) -> Table | None:
    """Return the rows of whole lines of metrics.jsonl; None where any of them may need a closer look.

    Args:
        text: Lines that each end with a newline.
    """
    marks = _marks_per_row()
    parts: list[NDArray[np.float64]] = []
    ends: list[NDArray[np.int64]] = []
    before = 0
    for lines in _chunks(text):
        try:
            rows = _decoder().decode_lines(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        # A blank line gives no row; an unknown key or one that stands twice has quotation marks of its own.
        signs = np.frombuffer(lines, dtype=np.uint8)
        ends.append(np.flatnonzero(signs == _LINE_END) + before)
        if len(ends[-1]) != len(rows) or np.count_nonzero(signs == _MARK) != marks * len(rows):
            return None
        before += len(lines)
        seconds = _seconds([row.time for row in rows])
        if seconds is None:
            return None
        part = np.empty((len(NUMBERS) + 1, len(rows)))
        for place, values in enumerate(_numbers(rows)):
            part[place] = np.fromiter(values, dtype=np.float64, count=len(values))  # None is NaN.
        part[-1] = seconds
        parts.append(part)
    table = parts[0] if len(parts) == 1 else np.concatenate([np.empty((len(NUMBERS) + 1, 0)), *parts], axis=1)
    places = np.concatenate([np.empty(0, dtype=np.int64), *ends])
    return Table(text, places, Columns(**dict(zip((*NUMBERS, "seconds"), table, strict=True))))


def _chunks(text: bytes) -> Iterator[bytes]:
    """Yield the text in pieces of whole lines."""
    if len(text) <= CHUNK_BYTES:
        if text:
            yield text
        return
    start = 0
    while start < len(text):
        end = text.rfind(b"\n", start, start + CHUNK_BYTES) + 1 or text.find(b"\n", start) + 1
        yield text[start:end]
        start = end


def _numbers(rows: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the numbers of all rows, field by field in the order of `NUMBERS`; null is None."""
    # Written out: a name that is looked up by a variable takes three times as long, and a tuple for each row would be
    # watched by the garbage collector, which costs as much as all the rest.
    yield [row.step for row in rows]
    yield [row.tokens_seen for row in rows]
    yield [row.loss for row in rows]
    yield [row.learning_rate for row in rows]
    yield [row.grad_norm for row in rows]
    yield [row.step_seconds for row in rows]
    yield [row.tokens_per_second for row in rows]
    yield [row.device_memory_bytes for row in rows]


def _seconds(times: Sequence[str]) -> NDArray[np.float64] | None:
    """Return times as seconds since 1970, or None where one is not written as trainproof writes it, in UTC."""
    length = len(times[0])
    if length not in _TIMES or min(map(len, times)) != length or max(map(len, times)) != length:
        return None
    form = _TIMES[length]
    above = np.where(form == ord("0"), 9, 0).astype(np.uint8)
    above[-_OFFSET:] = 0
    try:
        signs = np.frombuffer("".join(times).encode("ascii"), dtype=np.uint8).reshape(-1, length)
        if not (signs - form <= above).all():
            return None
        local = np.ascontiguousarray(signs[:, :-_OFFSET])
        at = local.view(f"S{length - _OFFSET}").ravel().astype("datetime64[us]")
    except ValueError:  # Not ASCII, or no day of the calendar.
        return None
    return None if (at < _FIRST_YEAR).any() else at.astype(np.int64) / 1e6


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct_of(TABLE_KIND, as_text=("time",)))


@cache
def _marks_per_row() -> int:
    marks = fixed_quotation_marks(schema(TABLE_KIND))
    if marks is None or struct_of(TABLE_KIND).__struct_fields__ != (*NUMBERS, "time"):
        what = "the schema of metric rows has changed; its columns must change with it"
        raise AssertionError(what)
    return marks
