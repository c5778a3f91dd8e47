"""Times as documents write them (RFC 3339 with offset) turned into moments that can be compared."""

from __future__ import annotations

from datetime import datetime


def moment(text: str) -> datetime | None:
    """Return the moment of a time with offset; None for any other text, and where the calendar has no such day.

    A leap second (`:60`) becomes the second before it, because Python has no leap seconds.
    """
    try:
        at = datetime.fromisoformat(text.replace(":60", ":59", 1) if ":60" in text else text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def seconds_between(earlier: str, later: str) -> float | None:
    """Return the seconds from the first time to the second, negative if it is earlier; None if one is not a time."""
    first, second = moment(earlier), moment(later)
    return None if first is None or second is None else (second - first).total_seconds()
