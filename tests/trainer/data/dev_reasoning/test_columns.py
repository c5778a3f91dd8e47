"""Written arithmetic agrees with Python's, and its lines hold the digits of the numbers it was given."""

import re

from hypothesis import given
from hypothesis import strategies as st

from trainer.data.builtin.reasoning import columns

NUMBERS = st.integers(0, 9999)


def column_digits(worked, sign):
    """The two digits of every column, a borrowed ten taken back off."""
    pairs = [re.match(rf"\w+: (\d+) {re.escape(sign)} (\d+)", line).groups() for line in worked.lines]
    return [(int(x) % 10, int(y)) for x, y in pairs]


def composed(digits):
    return sum(digit * 10**place for place, digit in enumerate(digits))


@given(NUMBERS, NUMBERS)
def test_addition(a, b):
    worked = columns.add(a, b)
    digits = column_digits(worked, "+")
    assert worked.result == str(a + b)
    assert (composed(x for x, _ in digits), composed(y for _, y in digits)) == (a, b)


@given(NUMBERS, NUMBERS)
def test_subtraction(a, b):
    high, low = max(a, b), min(a, b)
    worked = columns.subtract(high, low)
    digits = column_digits(worked, "-")
    assert worked.result == str(high - low)
    assert (composed(x for x, _ in digits), composed(y for _, y in digits)) == (high, low)


@given(NUMBERS, st.integers(0, 9))
def test_multiplication(a, digit):
    worked = columns.multiply(a, digit)
    digits = column_digits(worked, "×")
    assert worked.result == str(a * digit)
    assert composed(x for x, _ in digits) == a
    assert {y for _, y in digits} == {digit}


def test_the_lines_as_they_stand():
    assert columns.add(478, 356).lines == (
        "Ones: 8 + 6 = 14, carry 1.",
        "Tens: 7 + 5 + 1 = 13, carry 1.",
        "Hundreds: 4 + 3 + 1 = 8.",
    )
    assert columns.subtract(512, 478).lines == (
        "Ones: 12 - 8 = 4, borrow 1.",
        "Tens: 11 - 7 - 1 = 3, borrow 1.",
        "Hundreds: 5 - 4 - 1 = 0.",
    )
    assert columns.multiply(47, 6).lines == ("Ones: 7 × 6 = 42, carry 4.", "Tens: 4 × 6 = 24, 24 + 4 = 28.")
