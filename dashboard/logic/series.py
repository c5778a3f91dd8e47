"""The series of a run, read from `metrics.jsonl` as columns, and read on from where the last reading stopped.

A page that follows a run asks every second, so only new bytes are read. What does not live here: judging the rows
(`schemas.validate` does that) and thinning them (`sampling`).
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np

from evidence.kept_columns import kept

CHUNK_BYTES = 4 * 2**20
"""Bytes decoded at a time, so that a large file never exists as Python objects as a whole."""

NAMES = (
    "step",
    "tokens_seen",
    "loss",
    "learning_rate",
    "grad_norm",
    "step_seconds",
    "tokens_per_second",
    "device_memory_bytes",
)


class _Row(msgspec.Struct, gc=False):
    """The fields that are drawn; any other field of a row is passed over."""

    step: float
    time: datetime | None = None
    tokens_seen: float | None = None
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    device_memory_bytes: float | None = None


_DECODER = msgspec.json.Decoder(_Row)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Columns of a run, all of one length, NaN where a value is null.

    Attributes:
        columns: by field name of a metric row, `[rows]` float64; `seconds` is the time since the first row.
        unread: lines in the middle of the file that are no metric rows.
    """

    columns: dict[str, np.ndarray]
    unread: int

    @property
    def rows(self) -> int:
        """Rows read."""
        return len(self.columns["step"])

    def has(self, name: str) -> bool:
        """Return whether any row states a value for this column."""
        return bool(np.isfinite(self.columns[name]).any())

    def last(self, name: str) -> float | None:
        """Return the value in the last row, None where it is null or there is no row."""
        column = self.columns[name]
        return float(column[-1]) if len(column) and math.isfinite(column[-1]) else None


class Tail:
    """Reads one growing file; safe for several pages at a time.

    An unfinished last line is left for the next reading. A file that was replaced or cut is read afresh.

    Args:
        path: The file.
        columns_in: Folder of `evidence.kept_columns` where a long file may have been kept. None: none.
    """

    def __init__(self, path: Path, *, columns_in: Path | None = None) -> None:
        self._path = path
        self._columns_in = columns_in
        self._lock = threading.Lock()
        self._forget()

    def series(self) -> Series:
        """Return all rows up to now, having read only those that are new.

        A file that is missing or cannot be read is an empty series: the page says elsewhere what is wrong with the run.
        """
        with self._lock:
            self._read_on()
            return self._series()

    def _forget(self) -> None:
        self._offset = 0
        self._inode: int | None = None
        self._unread = 0
        self._parts: list[np.ndarray] = []

    def _read_on(self) -> None:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._forget()
                    self._inode = status.st_ino
                    self._take_kept(status.st_size)
                file.seek(self._offset)
                while chunk := file.read(CHUNK_BYTES):
                    whole = chunk[: chunk.rfind(b"\n") + 1]
                    if not whole:
                        break
                    self._take(whole)
                    self._offset += len(whole)
                    file.seek(self._offset)
        except OSError:
            self._forget()

    def _take_kept(self, size: int) -> None:
        """Begin with what the index kept of the file, if it is of the file as it is now."""
        table = kept(self._columns_in, self._path) if self._columns_in else None
        if table is not None:
            self._parts, self._offset = [table], size

    def _take(self, lines: bytes) -> None:
        rows, unread = _decoded(lines)
        self._unread += unread
        if rows:
            self._parts.append(_as_columns(rows))

    def _series(self) -> Series:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts, axis=1)]
        table = self._parts[0] if self._parts else np.empty((len(NAMES) + 1, 0))
        columns = dict(zip(NAMES, table, strict=False))
        times = table[-1]
        stated = times[np.isfinite(times)]
        columns["seconds"] = times - stated[0] if len(stated) else times
        return Series(columns=columns, unread=self._unread)


def _decoded(lines: bytes) -> tuple[list[_Row], int]:
    """Return the rows of whole lines, and how many lines are no rows."""
    try:
        return _DECODER.decode_lines(lines), 0
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    rows, unread = [], 0
    for line in lines.splitlines():
        try:
            rows.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            unread += bool(line.strip())
    return rows, unread


def _as_columns(rows: list[_Row]) -> np.ndarray:
    """Return `[columns rows]` float64 in the order of `NAMES`, then the time in seconds since 1970."""
    columns = [[getattr(row, name) for row in rows] for name in NAMES]
    times = [row.time.timestamp() if row.time is not None else math.nan for row in rows]
    return np.array([*columns, times], dtype=np.float64)
