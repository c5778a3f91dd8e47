"""The end of a run's log. Records are not validated here; that is `schemas.validate`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAIL_BYTES = 4 * 2**20
"""Bytes read from the end of a log."""


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """Records from the end of a log.

    Attributes:
        records: The records in the order of the file.
        unread: Number of lines that are not records.
        is_cut: Whether the log has earlier lines, which were not read.
    """

    records: tuple[dict[str, Any], ...]
    unread: int
    is_cut: bool


def read_log(path: Path) -> LogTail:
    """Read the complete lines in the last `TAIL_BYTES` of a log; none if the file is missing or unreadable."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - TAIL_BYTES)
            file.seek(start)
            lines = file.read(TAIL_BYTES).split(b"\n")[bool(start) : -1]
    except OSError:
        return LogTail(records=(), unread=0, is_cut=False)
    records, unread = [], 0
    for line in lines:
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            record = None
        if record and isinstance(record, dict):
            records.append(record)
        elif record != {}:
            unread += 1
    return LogTail(records=tuple(records), unread=unread, is_cut=start > 0)
