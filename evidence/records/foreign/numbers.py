"""Numbers as people and tools print them, and when two printed figures state the same."""

from __future__ import annotations

import math
import re

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)"
)
"""Pattern of a number: `1,234`, `0.5`, `1e-05`, `nan`."""

_OF_A_WHOLE = 3
"""Decimals that a whole figure is taken to have been written with."""

_OF_SINGLE_PRECISION = 1.2e-7
"""Share by which a number moves when it is kept in 32 bits, as event files do."""

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


def agree(one: float, other: float, *, decimals_stated: int = 0) -> bool:
    """Return whether two figures can be the same number, one of them rounded or cut to fewer decimals.

    Rounding moves a number by half a unit of the last decimal at most; cutting by less than a unit, towards zero. With
    one decimal only rounding counts: cutting would take 0.8 for 0.88, and that is another loss.

    Args:
        one: A figure.
        other: Another one.
        decimals_stated: Decimals that the coarser one has at least: a whole percent is a fraction with two.

    Example:
        >>> agree(4.146, 4.1463695), agree(4.146, 4.1469), agree(4.146, 4.1455), agree(2.0, 1.99996)
        (True, True, True, True)
        >>> agree(0.9, 0.8), agree(0.8, 0.88), agree(4.146, 4.1453), agree(0.9, 0.86, decimals_stated=2)
        (False, False, False, False)
    """
    fewer, more = sorted((one, other), key=_decimals_of_a_figure)
    places = max(_decimals_of_a_figure(fewer), decimals_stated)
    slack = _OF_SINGLE_PRECISION * max(abs(one), abs(other))
    if places > 12 or one == other:
        return abs(one - other) <= slack
    unit = 10.0**-places
    can_be_cut = places > 1 and _decimals_of_a_figure(more) > places
    was_cut = can_be_cut and fewer * more >= 0 and abs(fewer) < abs(more)
    return abs(one - other) <= (1.0 if was_cut else 0.5) * unit + slack


def _decimals_of_a_figure(value: float) -> int:
    """Return the decimals of a figure; a whole one was written with some (2.0000) that its value does not keep."""
    return decimals(value) or _OF_A_WHOLE
