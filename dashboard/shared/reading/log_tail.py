"""The log of a run, read on from where the last reading stopped: a page that follows a run asks every few seconds.

What lives here: the newest records as they stand, valid or not. Judging them is for `schemas.validate`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dashboard.shared.reading.growing import GrowingLines
from schemas.reading.values import text_at

MOST_RECORDS = 20_000
"""Newest records kept in memory; a log that is longer is downloaded, not read on a page."""


LEVELS = ("debug", "info", "warning", "error")
OTHER = "other"
"""What a record of no level, or of one that is none of these, is looked for by."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """The newest records in their order, how many there are in all, and how many lines are no records."""

    records: Sequence[dict[str, Any]]
    total: int
    unread: int


def matching(records: Iterable[Mapping[str, Any]], levels: Collection[str], words: str) -> list[Mapping[str, Any]]:
    """Return the records of these levels whose message or event has these words, in either case."""
    wanted = words.lower()
    return [record for record in records if level_of(record) in levels and wanted in _text(record)]


def level_of(record: Mapping[str, Any]) -> str:
    """Return the level by which a record is looked for."""
    level = text_at(record, "level")
    return level if level in LEVELS else OTHER


def _text(record: Mapping[str, Any]) -> str:
    return "\n".join(text_at(record, key) or "" for key in ("message", "event")).lower()


class LogTail:
    """Reads one growing log; safe for several pages at a time."""

    def __init__(self, path: Path) -> None:
        self._lines = GrowingLines(path, take=self._take, forget=self._forget)
        self._lock = threading.Lock()

    def log(self) -> Log:
        """Return the log up to now, having read only what is new; empty where there is no file that can be read."""
        with self._lock:
            self._lines.read_on()
            unread = self._unread + self._lines.too_long
            return Log(records=tuple(self._records), total=self._total, unread=unread)

    def _forget(self) -> None:
        self._total = self._unread = 0
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDS)

    def _take(self, lines: bytes) -> None:
        for line in lines.splitlines():
            if not line.strip():
                continue
            try:
                record = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                record = None
            if isinstance(record, dict):
                self._records.append(record)
                self._total += 1
            else:
                self._unread += 1
