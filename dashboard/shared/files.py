"""The rows of a run, read from a `metrics.jsonl` that grows while the run trains.

A page that follows a run reads every few seconds, so only new bytes are read. Rows are not validated here (that is
`schemas.validate`), but lines that cannot be drawn are counted.
"""

from __future__ import annotations

import json
import math
import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schemas.catalog import TIME, number_names

MAX_LINE_BYTES = 4 * 2**20  # a longer line is skipped, so that a file without line ends never fills the memory


@dataclass(frozen=True, kw_only=True)
class Series:
    """Metrics of a run as columns.

    Attributes:
        columns: By name of the field, `[rows]` float64, read-only, NaN where a value is null. `seconds` is the time
            since the first row.
        unread: Number of lines that are too long or are not metric rows.
    """

    columns: dict[str, np.ndarray]
    unread: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns["step"])

    def has(self, name: str) -> bool:
        """Return whether any row has a value in this column."""
        return bool(np.isfinite(self.columns[name]).any())

    def last(self, name: str) -> float | None:
        """Return the value in the last row, or None."""
        column = self.columns[name]
        return float(column[-1]) if len(column) and math.isfinite(column[-1]) else None

    def up_to(self, step: float, *, after_seconds: float) -> Series:
        """Return the rows up to a step, with `after_seconds` added to their time."""
        end = int(np.searchsorted(self.columns["step"], step, side="right"))
        if end == self.rows and not after_seconds:
            return self
        columns = {name: column[:end] for name, column in self.columns.items()}
        return Series(columns=columns | {"seconds": columns["seconds"] + after_seconds}, unread=self.unread)

    @staticmethod
    def concatenate(parts: Sequence[Series]) -> Series | None:
        """Concatenate series; None if the list is empty."""
        names = parts[0].columns if parts else ()
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
        return Series(columns=columns) if parts else None


class Tail:
    """Reads a growing metrics file; safe for several pages at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._series: Series | None = None
        self._start_over(None)

    def series(self) -> Series:
        """Read new lines and return all rows; none if the file is missing or cannot be read."""
        with self._lock:
            try:
                for line in filter(bytes.strip, self._new_lines()):
                    try:
                        self._values.extend(_parse_row(line))
                    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                        self._unread += 1
            except OSError:
                self._start_over(None)
            if self._series is None:
                self._series = self._as_series()
            return self._series

    def _start_over(self, inode: int | None) -> None:
        self._inode = inode
        self._offset = self._unread = 0
        self._is_skipping = False
        self._values = array("d")
        self._series = None

    def _new_lines(self) -> Iterator[bytes]:
        """Yield complete new lines; start over if the file was replaced or cut."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._start_over(status.st_ino)
            file.seek(self._offset)
            while line := file.readline(MAX_LINE_BYTES):
                is_complete = line.endswith(b"\n")
                if not is_complete and not self._is_skipping and len(line) < MAX_LINE_BYTES:
                    return  # The writer has not finished it.
                self._offset += len(line)
                self._series = None
                if is_complete and not self._is_skipping:
                    yield line
                elif not self._is_skipping:
                    self._unread += 1
                self._is_skipping = not is_complete

    def _as_series(self) -> Series:
        names = (*number_names(), "seconds")
        table = np.asarray(self._values).reshape(-1, len(names)).T.copy()
        known = table[-1][np.isfinite(table[-1])]
        table[-1] -= known[0] if len(known) else 0.0
        table.flags.writeable = False
        return Series(columns=dict(zip(names, table, strict=True)), unread=self._unread)


def _parse_row(line: bytes) -> list[float]:
    """Return the numbers of a row in the order of the schema, NaN for null, and its time in seconds since 1970."""
    row = json.loads(line)
    if row.get("step") is None:
        raise ValueError(line)
    numbers = []
    for name in number_names():
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise TypeError(name)
        numbers.append(math.nan if value is None else float(value))
    time = row.get(TIME)
    return [*numbers, math.nan if time is None else datetime.fromisoformat(time).timestamp()]


TAIL_BYTES = 4 * 2**20  # bytes read from the end of a log


class LogTail(NamedTuple):
    """Records from the end of a log in its order, the number of lines that are not records, and whether it is cut."""

    records: Sequence[dict[str, Any]] = ()
    unread: int = 0
    is_cut: bool = False


def read_log(path: Path) -> LogTail:
    """Read the complete lines in the last `TAIL_BYTES` of a log; none if the file is missing or unreadable."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - TAIL_BYTES)
            file.seek(start)
            lines = file.read(TAIL_BYTES).split(b"\n")[bool(start) : -1]
    except OSError:
        return LogTail()
    records, unread = [], 0
    for line in filter(bytes.strip, lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            unread += 1
    return LogTail(records, unread, is_cut=start > 0)
