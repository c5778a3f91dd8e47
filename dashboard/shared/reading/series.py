"""The series of a run, read from `metrics.jsonl` as columns, and read on from where the last reading stopped.

A page that follows a run reads every second, so only new bytes are read. What does not live here: judging the rows
(`schemas.validate` does that) and thinning them (`sampling`).
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from dashboard.shared.reading.growing import GrowingLines
from schemas.catalog import TIME, number_names

_LEAST_ROWS = 256

_STEP = "step"
"""The field without which a line is not a row."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Columns of a run, all of one length, NaN where a value is null.

    Attributes:
        columns: by field name of a metric row, `[rows]` float64; `seconds` is the time since the first row. They share
            the memory of all series of the file and cannot be written to.
        unread: lines in the middle of the file that are not metric rows, or too long to be one.
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


class _GrowingArray:
    """Rows of numbers that grow to the right: what was once given out stays as it is, and shares its memory.

    A page that follows a run reads every few seconds, and Streamlit keeps what a closed page held for two minutes: with
    a copy for each of them, a million rows would take gigabytes.

    Args:
        values: `[columns rows]` float64 to begin with; not written to.
    """

    def __init__(self, values: np.ndarray) -> None:
        self._held = values
        self._used = values.shape[1]

    def append(self, values: np.ndarray) -> None:
        """Add `[columns rows]` at the end; the memory doubles when it is full."""
        end = self._used + values.shape[1]
        if end > self._held.shape[1]:
            larger = np.empty((len(values), max(end, 2 * self._used, _LEAST_ROWS)))
            larger[:, : self._used] = self.values()
            self._held = larger
        self._held[:, self._used : end] = values
        self._used = end

    def values(self) -> np.ndarray:
        """Return what there is, `[columns rows]`."""
        values = self._held[:, : self._used]
        values.flags.writeable = False
        return values


class Tail:
    """Reads one growing file; safe for several pages at a time.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._lines = GrowingLines(path, take=self._take, forget=self._forget)
        self._lock = threading.Lock()

    def series(self) -> Series:
        """Return all rows up to now, having read only those that are new.

        A file that is missing or cannot be read is an empty series: the page states elsewhere what is wrong with the
            run.
        """
        with self._lock:
            self._lines.read_on()
            return self._series()

    def _forget(self) -> None:
        self._unread = 0
        self._numbers = _GrowingArray(np.empty((len(number_names()), 0)))
        self._seconds = _GrowingArray(np.empty((1, 0)))
        self._began: float | None = None

    def _take(self, lines: bytes) -> None:
        rows, unread = _decode(lines)
        self._unread += unread
        if rows:
            self._numbers.append(np.array([[row[name] for row in rows] for name in number_names()], dtype=np.float64))
            self._seconds.append(self._since_the_first(np.array([[row[TIME] for row in rows]])))

    def _since_the_first(self, times: np.ndarray) -> np.ndarray:
        """Return times since 1970, `[1 rows]` seconds, as times since the first that a row states."""
        if self._began is None:
            self._began = next((float(at) for at in times[0] if math.isfinite(at)), None)
        return times if self._began is None else times - self._began

    def _series(self) -> Series:
        columns = dict(zip(number_names(), self._numbers.values(), strict=True))
        columns["seconds"] = self._seconds.values()[0]
        return Series(columns=columns, unread=self._unread + self._lines.too_long)


def _decode(lines: bytes) -> tuple[list[dict[str, float]], int]:
    """Return the numbers and the time of each row of whole lines, and how many lines are not rows."""
    rows, unread = [], 0
    for line in lines.splitlines():
        try:
            rows.append(_numbers(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            unread += bool(line.strip())
    return rows, unread


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    """Return the numeric fields of a row, NaN where one is null or missing, and the time in seconds since 1970."""
    numbers = dict.fromkeys((*number_names(), TIME), math.nan)
    for name, value in row.items():
        if value is None or name not in numbers:
            continue
        if name == TIME:
            numbers[name] = datetime.fromisoformat(value).timestamp()
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(name)
        else:
            numbers[name] = float(value)
    if row[_STEP] is None:
        raise ValueError(_STEP)
    return numbers
