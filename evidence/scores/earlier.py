"""How numbers and choices were read before readers had a version: old runs are scored again as they were then."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from evidence.scores.forms import CHOICE, LETTER, PLAIN_NUMBER, numbers_in


def last_number(text: str) -> str | None:
    """Return the last number of a text as it is written, or None if it is missing."""
    found = numbers_in(text)
    return found[-1] if found else None


def number_of(text: str) -> Decimal | None:
    """Return the number that a text is, or None if it is not one."""
    plain = text.strip().replace("\u2212", "-").removesuffix("%").rstrip().removesuffix(".")
    plain = re.sub(r"^([-+]?)[$€£]", r"\1", plain)
    if len(plain) > 400 or not PLAIN_NUMBER.fullmatch(plain):
        return None
    number = Decimal(plain.replace(",", ""))
    return number if math.isfinite(float(number)) else None


def same_number(one: str, other: str, tolerance: float, *, least: int = 1) -> bool:
    """Return whether two texts are numbers at most a tolerance apart, as a share of the second."""
    first, second = number_of(one), number_of(other)
    if first is None or second is None:
        return False
    apart = abs(float(first) - float(second))
    return first == second or apart <= tolerance * max(float(least), abs(float(second))) * (1 + 1e-9)


def last_choice(text: str) -> str | None:
    """Return the letter of the last choice of a text, or None if it is missing: the whole text, or a capital alone."""
    if whole := LETTER.fullmatch(text.strip()):
        return whole[1].upper()
    found = CHOICE.findall(text)
    return found[-1] if found else None
