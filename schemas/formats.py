"""Format values, figures and text for messages, pages and reports.

A missing value is not zero: the functions for figures take None and return `NOTHING`.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

MAX_SHOWN = 60  # characters of a value that a message shows
NOTHING = "–"  # shown for a missing value
UNITS = ("KiB", "MiB", "GiB")  # binary units, each 1,024 times the one before
UNIT_LIMIT = 1_000  # numbers from here on are written in the next unit, so none has four digits before its point


def format_value(value: Any) -> str:
    """Format a value for a message: scalars as shortened JSON, lists and objects by their size.

    Example:
        >>> [format_value(value) for value in (None, "abc", [1, 2], {"a": 1})]
        ['null', '"abc"', 'a list of 2 items', 'an object with 1 key']
    """
    if isinstance(value, dict):
        return f"an object with {quantity(len(value), 'key')}"
    if isinstance(value, list | tuple):
        return f"a list of {quantity(len(value), 'item')}"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_SHOWN:
        return text
    cut = text[:MAX_SHOWN]
    return f'{cut}…" ({len(value)} characters)' if isinstance(value, str) else f"{cut}…"


def quantity(count: int, noun: str) -> str:
    """Format a number with its noun: `1 key`, `3,000 keys`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def tally(names: Iterable[str]) -> str:
    """Count equal names: `2 × Tesla T4`."""
    return ", ".join(f"{number} × {name}" for name, number in sorted(Counter(names).items())) or "none"


def join_words(words: Iterable[str], last: str = "or") -> str:
    """Join words to an enumeration: `a, b or c`."""
    *head, tail = list(words)
    return f"{', '.join(head)} {last} {tail}" if head else tail


def visible(text: str) -> str:
    r"""Escape control characters, line ends and characters that change the reading direction.

    A hostile file must not control the terminal. `"a\x1b[2Jb"` becomes the eight characters `a\x1b[2Jb`.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or unicodedata.category(char) == "Zs"
        else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


def join_lines(lines: Iterable[object]) -> str:
    """Join lines for a terminal, each made visible so that no value can start a new line."""
    return "".join(f"{visible(str(line))}\n" for line in lines)


def size(count: float | None) -> str:
    """Format a number of bytes; GiB have two decimals, smaller units one.

    Example:
        >>> [size(one) for one in (512, 12_595, 1_059_061_760, 16_911_433_728)]
        ['512 B', '12.3 KiB', '0.99 GiB', '15.75 GiB']
    """
    if count is None:
        return NOTHING
    if abs(count) < UNIT_LIMIT:
        return f"{count:.0f} B"
    for power, unit in enumerate(UNITS[:-1], start=1):
        in_unit = round(count / 1024**power, 1)
        if abs(in_unit) < UNIT_LIMIT:
            return f"{in_unit:.1f} {unit}"
    return f"{count / 1024 ** len(UNITS):,.2f} {UNITS[-1]}"


def duration(seconds: float | None) -> str:
    """Format a duration in its two largest units.

    Example:
        >>> [duration(one) for one in (0.0042, 42.3, 59.97, 185, 7_800)]
        ['4.2 ms', '42.3 s', '1 min 00 s', '3 min 05 s', '2 h 10 min']
    """
    if seconds is None:
        return NOTHING
    if seconds != 0 and abs(seconds) < 0.09995:
        return f"{1000 * seconds:.1f} ms"
    if abs(seconds) < 59.95:  # 59.97 would round to 60.0 s
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def duration_range(low: float, high: float) -> str:
    """Format a range of durations: `4.0 s to 1 min 20 s`, or one duration if both are equal."""
    return duration(low) if low == high else f"{duration(low)} to {duration(high)}"


def count(value: float | None) -> str:
    """Format a whole number with thousands separators: `1,234,567`."""
    return NOTHING if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """Format a count with three significant digits and a letter for its magnitude.

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
    """Format a rate: `12.3 k tokens/s`."""
    return NOTHING if per_second is None else f"{short_count(per_second)} {unit}/s"


def number(value: float | None, significant: int = 4) -> str:
    """Format a number with so many significant digits, with an exponent only where needed.

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
    exponent = int(f"{value:.{significant - 1}e}".partition("e")[2])  # after rounding: 9.99996 becomes 10.00
    if exponent < -4 or exponent >= significant + 3:
        return f"{value:.{significant - 1}e}"
    return f"{value:.{max(0, significant - 1 - exponent)}f}"


def percent(fraction: float | None) -> str:
    """Format a fraction as a percentage: 0.625 is `62.5 %`."""
    return NOTHING if fraction is None else f"{fraction * 100:.1f} %"


def percent_range(low: float | None, high: float | None) -> str:
    """Format an interval of fractions as percentages: `52.1–70.9 %`."""
    return NOTHING if low is None or high is None else f"{low * 100:.1f}–{high * 100:.1f} %"


def points(difference: float | None) -> str:
    """Format a difference of fractions in percentage points: `+12.5 points`, `−3.0 points`."""
    return NOTHING if difference is None else f"{difference * 100:+.1f} points".replace("-", "−")
