"""The rows of metrics.jsonl as columns: a million rows are read once, kept as text, and counted with as arrays.

`read_table` is a fast yes, as `row_types` is: it takes whole text in which every line is certainly valid and written
as trainproof writes it. For any other text it gives None, and `rows` reads line by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from schemas.catalog.row_fields import ROW_KIND, TIME, RowField, number_names, row_fields
from schemas.reading.row_types import struct_of
from schemas.reading.times import moment

Array = NDArray[np.float64]

SECONDS = "seconds"
"""The column made of the field `time`."""

CHUNK_BYTES = 2**20
"""Text decoded at a time, so that a large file never exists as Python objects as a whole."""

_TIMES = {
    len(form): np.frombuffer(form, dtype=np.uint8)
    for form in (b"0000-00-00T00:00:00+00:00", b"0000-00-00T00:00:00.000+00:00", b"0000-00-00T00:00:00.000000+00:00")
}
"""Times as they are written, to the second, millisecond or microsecond, by their length; 0 is any digit."""
_LINE_END, _MARK = ord("\n"), ord('"')
_OFFSET = len("+00:00")
_FIRST_YEAR = np.datetime64("0001-01-01")


Columns = Mapping[str, Array]
"""One array for each numeric field of a metric row, all `[rows]` float64; NaN where a row states null or nothing.

`seconds` is the field `time` in seconds since 1970, exact to the microsecond from 1685 to 2255; NaN for a day that the
calendar does not have.
"""


class MetricTable(Sequence[dict[str, Any]]):
    """Metric rows that were all right: a sequence of rows, each decoded on access, and their columns.

    Args:
        text: The lines.
        ends: `[rows]` offset of the newline of each row in the text.
        columns: The numbers of the rows.
    """

    def __init__(self, text: bytes, ends: NDArray[np.int64], columns: Columns) -> None:
        self.columns = columns
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

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
    """Return the columns of metric rows that are valid each; those of a `MetricTable` are there already."""
    if isinstance(rows, MetricTable):
        return rows.columns
    numbers = {name: column(rows, name) for name in number_names()}
    moments = (moment(row["time"]) for row in rows)
    seconds = np.array([math.nan if at is None else at.timestamp() for at in moments], dtype=np.float64)
    return {**numbers, SECONDS: seconds}


def column(rows: Sequence[dict[str, Any]], name: str) -> Array:
    """Return one number of every row, `[rows]`; NaN for null and for a field that the row lacks."""
    if isinstance(rows, MetricTable):
        return rows.columns[name]
    return np.array([row.get(name) for row in rows], dtype=np.float64)


def read_table(text: bytes) -> MetricTable | None:
    """Return the rows of whole lines of metrics.jsonl; None where any of them may need a closer look.

    Args:
        text: Lines that each end with a newline.
    """
    decoder, marks, fields = _table_decoder()
    parts: list[NDArray[np.float64]] = []
    ends: list[NDArray[np.int64]] = []
    before = 0
    for lines in _chunks(text):
        try:
            rows = decoder.decode_lines(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        signs = np.frombuffer(lines, dtype=np.uint8)
        ends.append(np.flatnonzero(signs == _LINE_END) + before)
        seconds = _seconds([row.time for row in rows])
        if seconds is None:
            return None
        part = np.empty((len(fields) + 1, len(rows)))
        optional = sum(_fill(part[place], rows, field) for place, field in enumerate(fields))
        # A blank line gives no row; an unknown or duplicate key has quotation marks of its own.
        stated = marks * len(rows) + 2 * optional
        if len(ends[-1]) != len(rows) or np.count_nonzero(signs == _MARK) != stated:
            return None
        before += len(lines)
        part[-1] = seconds
        parts.append(part)
    names = (*number_names(), SECONDS)
    table = parts[0] if len(parts) == 1 else np.concatenate([np.empty((len(names), 0)), *parts], axis=1)
    places = np.concatenate([np.empty(0, dtype=np.int64), *ends])
    return MetricTable(text, places, dict(zip(names, table, strict=True)))


def _fill(column: Array, rows: Sequence[Any], field: RowField) -> int:
    """Write one field of all rows into a column; return how many rows state it, if it is optional."""
    values = map(attrgetter(field.name), rows)
    if field.is_required:
        column[:] = np.fromiter(values, dtype=np.float64, count=len(rows))  # None is NaN.
        return 0
    stated = list(values)
    column[:] = [None if value is msgspec.UNSET else value for value in stated]
    return len(stated) - stated.count(msgspec.UNSET)


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


def _seconds(times: Sequence[str]) -> NDArray[np.float64] | None:
    """Return times as seconds since 1970, or None where one is not written as trainproof writes it, in UTC."""
    length = len(times[0]) if times else 0
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
def _table_decoder() -> tuple[msgspec.json.Decoder[Any], int, tuple[RowField, ...]]:
    """Return the decoder of a row, the quotation marks of one without optional fields, and its numeric fields."""
    decoder = msgspec.json.Decoder(struct_of(ROW_KIND, as_text=(TIME,)))
    fields = tuple(field for field in row_fields() if field.name != TIME)
    return decoder, 2 * sum(field.is_required for field in fields) + 4, fields
