"""Numbers as people and models write them: `1,234`, `-3.50`, `$12`, `1e3`."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?|\.[0-9]+"
# A sign belongs to a number unless it stands between two things, as in 5-3.
_NUMBER = re.compile(rf"(?:(?<![0-9A-Za-z)\].])[-+])?(?:{_DIGITS})")
_LONGEST = 400
"""Characters of a number; a longer text is not a number."""


def last_number(text: str) -> str | None:
    """Return the last number of a text as it is written, or None if it is missing.

    >>> last_number("3 + 4 = 7, so $1,234.50."), last_number("5-3"), last_number("x = −2"), last_number("none")
    ('1,234.50', '3', '-2', None)
    """
    found = numbers_in(text)
    return found[-1] if found else None


def numbers_in(text: str) -> list[str]:
    """Return all numbers of a text in order, as they are written.

    >>> numbers_in("3 + 4 = 7, so $1,234.50.")
    ['3', '4', '7', '1,234.50']
    """
    return [match[0] for match in _NUMBER.finditer(text.replace("\u2212", "-"))]


def number_of(text: str) -> Decimal | None:
    """Return the number that a text is, or None if it is not one.

    A currency sign, a percent sign or a stop may be beside it.

    >>> number_of(" $1,234.50 "), number_of("7."), number_of("12 %"), number_of("7 apples"), number_of("nan")
    (Decimal('1234.50'), Decimal('7'), Decimal('12'), None, None)
    """
    plain = text.strip().replace("\u2212", "-").removesuffix("%").rstrip().removesuffix(".")
    plain = re.sub(r"^([-+]?)[$€£]", r"\1", plain)
    if len(plain) > _LONGEST or not _NUMBER.fullmatch(plain):
        return None
    number = Decimal(plain.replace(",", ""))
    return number if math.isfinite(float(number)) else None


def same_number(one: str, other: str, tolerance: float) -> bool:
    """Return whether two texts are numbers at most a tolerance apart, as a share of the second where that is above 1.

    >>> same_number("1,000", "1000.0", 0), same_number("99", "100", 0.01), same_number("0.02", "0.03", 0.01)
    (True, True, True)
    """
    first, second = number_of(one), number_of(other)
    if first is None or second is None:
        return False
    if first == second:
        return True
    apart = abs(float(first) - float(second))
    return apart <= tolerance * max(1.0, abs(float(second))) * (1 + 1e-9)
