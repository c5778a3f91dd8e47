"""The log of a run, searched from its first line, and read on from where the last reading stopped.

A page that follows a run reads every few seconds. What lives here: records as they stand, valid or not. Judging them is
for `schemas.validate`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboard.shared.reading.growing import GrowingLines
from schemas.reading import get_str

MOST_RECORDS = 500
"""Newest records that are kept of those found; every record of the file is looked at and counted."""


LEVELS = ("debug", "info", "warning", "error")
OTHER = "other"
"""What a record of no level, or of an unknown one, is looked for by."""


@dataclass(frozen=True, kw_only=True)
class LogMatches:
    """What was found in a whole log.

    Attributes:
        records: The newest records found, in their order.
        found: How many were found.
        total: How many records there are.
        unread: How many lines are not records.
    """

    records: Sequence[dict[str, Any]]
    found: int
    total: int
    unread: int


def level_of(record: Mapping[str, Any]) -> str:
    """Return the level by which a record is looked for."""
    level = get_str(record, "level")
    return level if level in LEVELS else OTHER


class LogTail:
    """Finds records in one growing log; safe for several pages at a time.

    Args:
        path: The log.
        levels: Levels that are looked for, `OTHER` for all but `LEVELS`.
        words: What a record's message or event must hold, in either case; empty: anything.
    """

    def __init__(self, path: Path, levels: Collection[str] = (*LEVELS, OTHER), words: str = "") -> None:
        self._levels, self._words = frozenset(levels), words.lower()
        self._lines = GrowingLines(path, take=self._take, forget=self._forget)
        self._lock = threading.Lock()

    def log(self) -> LogMatches:
        """Return what is found up to now, having read only what is new; empty without a file that can be read."""
        with self._lock:
            self._lines.read_on()
            unread = self._unread + self._lines.too_long
            return LogMatches(records=tuple(self._records), found=self._found, total=self._total, unread=unread)

    def _forget(self) -> None:
        self._found = self._total = self._unread = 0
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDS)

    def _take(self, lines: bytes) -> None:
        for line in lines.splitlines():
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                self._unread += 1
                continue
            self._total += 1
            if level_of(record) in self._levels and (
                not self._words
                or self._words in ("\n".join(get_str(record, key) or "" for key in ("message", "event")).lower())
            ):
                self._records.append(record)
                self._found += 1
