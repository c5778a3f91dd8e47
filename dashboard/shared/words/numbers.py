"""Numbers as people read them: few digits, a unit, and a dash where nothing was measured.

A null is never a zero: every function takes None and returns `NOTHING`. Widths are even, so that columns line up.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo

NOTHING = "–"
THIN = "\u202f"
"""Narrow no-break space, between a number and its unit."""

_GIB = 2**30
_MIB = 2**20
_KIB = 2**10


def count(value: float | None) -> str:
    """Return a whole number in groups of three digits: `1,234,567`."""
    return NOTHING if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """Return a count in at most four characters and a letter: `950`, `12.3 k`, `4.10 M`, `2.00 G`."""
    if value is None:
        return NOTHING
    rounded = float(f"{value:.3g}")
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rounded) >= size:
            return f"{digits(rounded / size, 3)}{THIN}{letter}"
    return f"{rounded:.0f}"


def digits(value: float | None, significant: int = 4) -> str:
    """Return a number with `significant` digits and no needless exponent: `2.313`, `0.001000`, `1.2e-08`."""
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{significant - 1}e}".partition("e")[2])  # of what is shown: 9.99996 is shown as 10.00
    if exponent < -4 or exponent >= significant + 3:
        return f"{value:.{significant - 1}e}"
    return f"{value:.{max(0, significant - 1 - exponent)}f}"


def memory(value: float | None) -> str:
    """Return bytes in the binary unit that fits, 2³⁰ bytes being a GiB: `512 MiB`, `14.4 GiB`."""
    if value is None:
        return NOTHING
    for size, unit in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if abs(value) >= size:
            return f"{digits(value / size, 3)}{THIN}{unit}"
    return f"{value:.0f}{THIN}B"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units: `0.4 s`, `42 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}{THIN}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest:02d}{THIN}s"
    hours, minutes = divmod(minutes, 60)
    return f"{count(hours)}{THIN}h {minutes:02d}{THIN}min"


def rate(per_second: float | None, unit: str) -> str:
    """Return a rate: `12.3 k tokens/s`."""
    return NOTHING if per_second is None else f"{short_count(per_second)}{THIN}{unit}/s"


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage with one decimal: 0.625 is `62.5 %`."""
    return NOTHING if fraction is None else f"{fraction * 100:.1f}{THIN}%"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of fractions in percent: `52.1–70.9 %`."""
    if low is None or high is None:
        return NOTHING
    return f"{low * 100:.1f}–{high * 100:.1f}{THIN}%"


def points(difference: float | None) -> str:
    """Return a difference of fractions in percentage points, with its sign: `+12.5 points`."""
    return NOTHING if difference is None else f"{difference * 100:+.1f}{THIN}points".replace("-", "−")


def parse_time(text: str | None) -> datetime | None:
    """Return the moment that an RFC 3339 text states, None where it states none or carries no offset."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def moment(text: str | None, zone: tzinfo = UTC) -> str:
    """Return a stated time in the reader's zone, to the second: `2026-11-20 15:30:12`."""
    stated = parse_time(text)
    return NOTHING if stated is None else f"{stated.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def clock(text: str | None, zone: tzinfo = UTC) -> str:
    """Return the time of day of a stated time in the reader's zone: `15:30:12`."""
    stated = parse_time(text)
    return NOTHING if stated is None else f"{stated.astimezone(zone):%H:%M:%S}"


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds from one stated time to another, None where one of them is missing or the order is wrong."""
    first, second = parse_time(earlier), parse_time(later)
    if first is None or second is None or second < first:
        return None
    return (second - first).total_seconds()
