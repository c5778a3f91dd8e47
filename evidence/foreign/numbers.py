"""Numbers as people and tools print them, and when two printed figures state the same.

What lives here: literals and precision. What does not: which number is which figure (`keys`).
"""

from __future__ import annotations

import math
import re

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)"
)
"""Pattern of a number: `1,234`, `0.5`, `1e-05`, `nan`."""

_WHOLE = re.compile(r"[-+]?\d{1,15}")
_NUMBER = re.compile(NUMBER, re.IGNORECASE)


def number_of(text: str) -> int | float | None:
    """Return the number that a text is, a whole one as int; None where it is none.

    Example:
        >>> number_of("1,234"), number_of("4e-07"), number_of("twelve")
        (1234, 4e-07, None)
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "")
    return int(plain) if _WHOLE.fullmatch(plain) else float(plain)


def finite(value: float) -> float | None:
    """Return a number that JSON can hold; None for NaN, infinity and whole numbers beyond a float."""
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def decimals(value: float) -> int:
    """Return the decimals with which Python prints a number: 2 for 0.25, 5 for 1e-05, 0 for 3."""
    text = repr(float(value))
    mantissa, _, exponent = text.partition("e")
    fraction = mantissa.partition(".")[2]
    digits = 0 if fraction == "0" else len(fraction)
    return max(0, digits - int(exponent or 0))


def agree(one: float, other: float) -> bool:
    """Return whether two figures can be the same number, one of them rounded or cut to fewer decimals.

    Example:
        >>> agree(4.146, 4.1463695), agree(4.146, 3.7922)
        (True, False)
    """
    coarser = min(decimals(one), decimals(other))
    if coarser > 12 or one == other:
        return math.isclose(one, other, rel_tol=1e-9)
    return abs(one - other) <= 10.0**-coarser * (1 if coarser else 0) + 1e-9 * max(abs(one), abs(other))
