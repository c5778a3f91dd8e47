"""Times in the reader's zone, or a dash if none is stated."""

from __future__ import annotations

from datetime import UTC, tzinfo

from schemas.formats import NOTHING
from schemas.reading import parse_time


def date_and_time(text: str | None, zone: tzinfo = UTC) -> str:
    """Format a stated time to the second: `2026-11-20 15:30:12`."""
    time = parse_time(text or "")
    return NOTHING if time is None else f"{time.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def clock(text: str | None, zone: tzinfo = UTC) -> str:
    """Format the time of day of a stated time: `15:30:12`."""
    time = parse_time(text or "")
    return NOTHING if time is None else f"{time.astimezone(zone):%H:%M:%S}"
