"""Written arithmetic, column by column from the right, as at school: the lines and the result that they spell.

The result is put together from the digits of the lines, never from Python's own arithmetic on the whole numbers;
`verify` of each kind uses the latter, so that the two can disagree if either is wrong.
"""

from dataclasses import dataclass
from itertools import zip_longest

PLACES = ("Ones", "Tens", "Hundreds", "Thousands")


@dataclass(frozen=True, kw_only=True)
class ColumnCalculation:
    """A worked calculation. The last column carries nothing: its sum or product is written down whole."""

    lines: tuple[str, ...]
    """One line per column, ones first."""
    result: str
    """The result, read off the columns, without leading zeros."""


def add(a: int, b: int) -> ColumnCalculation:
    """Return a + b, worked.

    Example: 47 + 38 is `Ones: 7 + 8 = 15, carry 1.`, `Tens: 4 + 3 + 1 = 8.`, result 85.
    """
    lines: list[str] = []
    digits = ""
    carry = 0
    columns = _columns(a, b)
    for place, (x, y) in zip(PLACES, columns, strict=False):
        total = x + y + carry
        term = " + 1" if carry else ""
        carry = int(total > 9)
        tail = ", carry 1." if carry and len(lines) + 1 < len(columns) else "."
        lines.append(f"{place}: {x} + {y}{term} = {total}{tail}")
        digits = str(total % 10) + digits
    return ColumnCalculation(lines=tuple(lines), result=_trim(("1" if carry else "") + digits))


def subtract(a: int, b: int) -> ColumnCalculation:
    """Return a - b for a >= b, worked.

    Example: 52 - 17 is `Ones: 12 - 7 = 5, borrow 1.`, `Tens: 5 - 1 - 1 = 3.`, result 35.
    """
    lines = []
    digits = ""
    borrow = 0
    for place, (x, y) in zip(PLACES, _columns(a, b), strict=False):
        term = " - 1" if borrow else ""
        lent = 10 if x - y - borrow < 0 else 0
        left = x + lent - y - borrow
        borrow = int(lent > 0)
        tail = ", borrow 1." if borrow else "."
        lines.append(f"{place}: {x + lent} - {y}{term} = {left}{tail}")
        digits = str(left) + digits
    return ColumnCalculation(lines=tuple(lines), result=_trim(digits))


def multiply(a: int, digit: int) -> ColumnCalculation:
    """Return a × digit for one digit, worked.

    Example: 47 × 6 is `Ones: 7 × 6 = 42, carry 4.`, `Tens: 4 × 6 = 24, 24 + 4 = 28.`, result 282.
    """
    lines: list[str] = []
    digits = ""
    carry = 0
    for place, x in zip(PLACES, _digits(a), strict=False):
        product = x * digit
        total = product + carry
        term = f", {product} + {carry} = {total}" if carry else ""
        carry = total // 10
        tail = f", carry {carry}." if carry and len(lines) + 1 < len(str(a)) else "."
        lines.append(f"{place}: {x} × {digit} = {product}{term}{tail}")
        digits = str(total % 10) + digits
    return ColumnCalculation(lines=tuple(lines), result=_trim((str(carry) if carry else "") + digits))


def _digits(number: int) -> list[int]:
    return [int(digit) for digit in reversed(str(number))]


def _columns(a: int, b: int) -> list[tuple[int, int]]:
    return list(zip_longest(_digits(a), _digits(b), fillvalue=0))


def _trim(digits: str) -> str:
    return digits.lstrip("0") or "0"
