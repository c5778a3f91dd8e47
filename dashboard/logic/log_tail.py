"""The log of a run, read on from where the last reading stopped: a page that follows a run asks every few seconds.

What lives here: the newest records as they stand, valid or not. Judging them is for `schemas.validate`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

MOST_RECORDS = 20_000
"""Newest records kept in memory; a log that is longer is downloaded, not read on a page."""
_CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class Log:
    """The newest records in their order, how many there are in all, and how many lines are no records."""

    records: Sequence[dict[str, Any]]
    total: int
    unread: int


class LogTail:
    """Reads one growing log; safe for several pages at a time.

    An unfinished last line is left for the next reading. A file that was replaced or cut is read afresh.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._forget()

    def log(self) -> Log:
        """Return the log up to now, having read only what is new; empty where there is no file that can be read."""
        with self._lock:
            self._read_on()
            return Log(records=tuple(self._records), total=self._total, unread=self._unread)

    def _forget(self) -> None:
        self._offset = self._total = self._unread = 0
        self._inode: int | None = None
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDS)

    def _read_on(self) -> None:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._forget()
                    self._inode = status.st_ino
                file.seek(self._offset)
                while chunk := file.read(_CHUNK_BYTES):
                    whole = chunk[: chunk.rfind(b"\n") + 1]
                    if not whole:
                        break
                    self._take(whole)
                    self._offset += len(whole)
                    file.seek(self._offset)
        except OSError:
            self._forget()

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
