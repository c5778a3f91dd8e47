"""Columns of a table as Streamlit sends them.

They are made from their buffers. `pyarrow.array` would do the same and first import pandas, to see whether it was given
something of it: a second or two that the first visitor would wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def table(columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return columns of the same length as a table."""
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def floats(values: Sequence[float | None]) -> pa.Array:
    """Return numbers as `[values]` float64; None and NaN are null."""
    return numbers(np.array(values, dtype=np.float64))


def numbers(values: np.ndarray) -> pa.Array:
    """Return an array as it is, `[values]` of its own kind of number; NaN is null."""
    return _fix(pa.from_numpy_dtype(values.dtype), values, ~np.isnan(values))


def times(values: Sequence[datetime | None]) -> pa.Array:
    """Return moments to the microsecond, in UTC; None is null."""
    since = [0 if at is None else (at - _START) // _MICROSECOND for at in values]
    return _fix(pa.timestamp("us", tz="UTC"), np.array(since, dtype=np.int64), _stated_mask(values))


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return texts; None is null, and half a character is written as its code."""
    encoded = [b"" if value is None else value.encode("utf-8", "backslashreplace") for value in values]
    buffers = [_bits(_stated_mask(values)), _buffer(_offsets(encoded)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def lists_of_floats(values: Sequence[Sequence[float | None]]) -> pa.Array:
    """Return a list of numbers for each row."""
    return _lists(values, floats([one for row in values for one in row]))


def lists_of_texts(values: Sequence[Sequence[str]]) -> pa.Array:
    """Return a list of texts for each row."""
    return _lists(values, texts([one for row in values for one in row]))


def _lists(rows: Sequence[Sequence[Any]], flat: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.list_(flat.type), len(rows), [None, _buffer(_offsets(rows))], children=[flat])


def _fix(kind: pa.DataType, values: np.ndarray, is_stated: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [_bits(is_stated), _buffer(values)])


def _stated_mask(values: Sequence[object]) -> np.ndarray:
    return np.array([value is not None for value in values], dtype=bool)


def _bits(flags: np.ndarray) -> pa.Buffer:
    return _buffer(np.packbits(flags, bitorder="little"))


def _offsets(parts: Sequence[Sequence[Any]]) -> np.ndarray:
    """Return where each part begins in all of them one after the other, and where the last one ends."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int32)


def _buffer(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(values.tobytes())
