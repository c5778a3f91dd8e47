"""Figures in words: bytes, durations, counts, shares; the terminal, the pages and the reports write them alike.

A null is not a zero: each function takes None and returns `NOTHING`. A plain space stands between number and unit.
"""

from __future__ import annotations

import math

NOTHING = "–"
"""What is written for a value that is missing."""

UNITS = ("KiB", "MiB", "GiB")
"""Binary units, each 1,024 times the one before; 2³⁰ bytes are a GiB."""

LARGEST_OF_UNIT = 1_000
"""The next unit is used from this number on; no figure has four digits before its point."""


def size(count: float | None) -> str:
    """Return bytes in the largest unit that gives a number below 1,000.

    GiB have two decimals, as the memory of devices is stated; smaller units have one, bytes are whole.

    Example:
        >>> [size(one) for one in (512, 12_595, 1_059_061_760, 16_911_433_728)]
        ['512 B', '12.3 KiB', '0.99 GiB', '15.75 GiB']
    """
    if count is None:
        return NOTHING
    if abs(count) < LARGEST_OF_UNIT:
        return f"{count:.0f} B"
    for power, unit in enumerate(UNITS[:-1], start=1):
        in_unit = round(count / 1024**power, 1)
        if abs(in_unit) < LARGEST_OF_UNIT:
            return f"{in_unit:.1f} {unit}"
    return f"{count / 1024 ** len(UNITS):,.2f} {UNITS[-1]}"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units; below a minute in seconds, below a tenth of one in milliseconds.

    Example:
        >>> [duration(one) for one in (0.0042, 42.3, 59.97, 185, 7_800)]
        ['4.2 ms', '42.3 s', '1 min 00 s', '3 min 05 s', '2 h 10 min']
    """
    if seconds is None:
        return NOTHING
    if seconds != 0 and abs(seconds) < 0.09995:
        return f"{1000 * seconds:.1f} ms"
    if abs(seconds) < 59.95:  # 59.97 would be written 60.0 s
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def count(value: float | None) -> str:
    """Return a whole number in groups of three digits: `1,234,567`."""
    return NOTHING if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """Return a count with three digits and a letter for its thousands.

    Example:
        >>> [short_count(one) for one in (0.25, 950, 12_345, 4_100_000)]
        ['0.250', '950', '12.3 k', '4.10 M']
    """
    if value is None:
        return NOTHING
    rounded = float(f"{value:.3g}")
    for power, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rounded) >= power:
            return f"{number(rounded / power, 3)} {letter}"
    return f"{rounded:.0f}" if rounded == round(rounded) else number(rounded, 3)


def rate(per_second: float | None, unit: str) -> str:
    """Return how many of something there are in a second: `12.3 k tokens/s`."""
    return NOTHING if per_second is None else f"{short_count(per_second)} {unit}/s"


def number(value: float | None, significant: int = 4) -> str:
    """Return a number with so many significant digits, with an exponent only where it is needed.

    Example:
        >>> [number(one) for one in (2.3126, 0.001, 1.2e-8, float("inf"))]
        ['2.313', '0.001000', '1.200e-08', 'not finite']
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{significant - 1}e}".partition("e")[2])  # of what is written: 9.99996 becomes 10.00
    if exponent < -4 or exponent >= significant + 3:
        return f"{value:.{significant - 1}e}"
    return f"{value:.{max(0, significant - 1 - exponent)}f}"


def percent(fraction: float | None) -> str:
    """Return a share between 0 and 1 in percent: 0.625 is `62.5 %`."""
    return NOTHING if fraction is None else f"{fraction * 100:.1f} %"


def percent_range(low: float | None, high: float | None) -> str:
    """Return an interval of shares in percent: `52.1–70.9 %`."""
    return NOTHING if low is None or high is None else f"{low * 100:.1f}–{high * 100:.1f} %"


def points(difference: float | None) -> str:
    """Return a difference of shares in percentage points, with its sign: `+12.5 points`, `−3.0 points`."""
    return NOTHING if difference is None else f"{difference * 100:+.1f} points".replace("-", "−")
