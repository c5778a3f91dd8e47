"""Times as other tools write them."""

from __future__ import annotations

from datetime import UTC, datetime

_LARGEST = 4_102_444_800
"""Seconds since 1970 beyond which a number is no time of a run: the year 2100."""


def time_of(value: object) -> datetime | None:
    """Return the time that a value states: ISO 8601, or seconds since 1970; None for anything else.

    Example:
        >>> time_of("2026-01-02T05:04:12Z").hour, time_of(0), time_of("yesterday")
        (5, None, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC) if 0 < value < _LARGEST else None
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        return None
