"""Stated times as people read them: in the reader's zone, a dash where none is stated."""

from __future__ import annotations

from datetime import UTC, tzinfo

from schemas.formats import NOTHING
from schemas.reading import parse_time


def date_and_time(text: str | None, zone: tzinfo = UTC) -> str:
    """Return a stated time in the reader's zone, to the second: `2026-11-20 15:30:12`."""
    stated = parse_time(text or "")
    return NOTHING if stated is None else f"{stated.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def clock(text: str | None, zone: tzinfo = UTC) -> str:
    """Return the time of day of a stated time in the reader's zone: `15:30:12`."""
    stated = parse_time(text or "")
    return NOTHING if stated is None else f"{stated.astimezone(zone):%H:%M:%S}"
