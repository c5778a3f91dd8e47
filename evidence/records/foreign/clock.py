"""Times as other tools write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_LARGEST = 4_102_444_800
"""Seconds since 1970 beyond which a number is no time of a run: the year 2100."""

_DURATION = re.compile(r"(?:(\d{1,5}) days?, )?(\d{1,5}):(\d{2}):(\d{2}(?:\.\d+)?)")


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


def seconds_of(value: object) -> float | None:
    """Return a duration of the form `1 day, 2:03:04` or `0:10:10` in seconds; None for anything else.

    Example:
        >>> seconds_of("0:10:10"), seconds_of("1 day, 0:00:01"), seconds_of(12)
        (610.0, 86401.0, None)
    """
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds
