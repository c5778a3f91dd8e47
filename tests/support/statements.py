"""Check the reasoning of generated rows without using the code of the generator."""

import calendar
import re
from fractions import Fraction
from itertools import pairwise

PLACES = ("Ones", "Tens", "Hundreds")
UNITS = {
    ("m", "cm"): 100, ("km", "m"): 1000, ("cm", "mm"): 10, ("kg", "g"): 1000,
    ("week", "days"): 7, ("hour", "minutes"): 60, ("minute", "seconds"): 60,
}  # fmt: skip
FACTS = {
    "Adding 0 changes nothing.": r"What is (0 \+ \d+|\d+ \+ 0)\?",
    "Subtracting 0 changes nothing.": r"What is \d+ - 0\?",
    "A number minus itself is 0.": r"What is (\d+) - \1\?",
    "Anything times 0 is 0.": r"What is \d+ × 0\?",
    "Multiplying by 1 changes nothing.": r"What is \d+ × 1\?",
    "Both are equal.": r"Which is \w+, (\d+) or \1\?",
}


def untrue(row):
    """Return the steps of a row that are false or unknown, or that lose a carry or borrow."""
    lines = [step["content"] for step in row["steps"]]
    false = [line for line in lines if not is_true(line, row["prompt"])] + unplanned(lines, row["prompt"])
    columns = [line for line in lines if line.startswith(PLACES)]
    # A column of ones begins another calculation.
    pairs = [(line, following) for line, following in pairwise(columns) if not following.startswith("Ones")]
    return false + [line for line, following in pairs if not is_handed_on(line, following)]


def is_handed_on(line, following):
    """Return whether the next column adds or subtracts what this one carries or borrows."""
    if " = " not in line or re.fullmatch(r"\w+: \d = \d\.", line):
        return True
    moved = re.search(r"(carry|borrow) (\d)\.$", line)
    if not moved:
        total = value(re.findall(r"= (\d+)", line)[-1])
        return total < 10 and not re.search(r"[-+] \d+ [-+] 1 =|, \d+ \+", following)
    sign = re.escape("+" if moved[1] == "carry" else "-")
    return bool(re.search(rf"(: \d+ [-+] \d|, \d+) {sign} {moved[2]} = \d+(, \w+ \d)?\.$", following))


def is_true(line, prompt):
    readers = (column, fact, month, unit, clock, hour_of, order, plan, claim)
    return any(reader(line, prompt) for reader in readers)


def column(line, prompt):
    match = re.fullmatch(r"(Ones|Tens|Hundreds): (.+?)(?:, (carry|borrow) (\d))?\.", line)
    if not match:
        return False
    claims, kind, moved = match[2].split(", "), match[3], int(match[4] or 0)
    if not all(holds(part) for part in claims):
        return False
    left, right = re.split(" [=<>] ", claims[-1])
    if kind == "carry":
        return value(right) // 10 == moved
    needs_loan = " - " in left and int(left.split()[0]) > 9
    return needs_loan == (kind == "borrow") and moved == int(needs_loan)


def claim(line, prompt):
    return line.endswith(".") and holds(line.removesuffix("."))


def fact(line, prompt):
    return line in FACTS and bool(re.fullmatch(FACTS[line], prompt))


def month(line, prompt):
    match = re.fullmatch(r"(\w+) has (\d+) days\.", line)
    return bool(match) and calendar.monthrange(2023, list(calendar.month_name).index(match[1]))[1] == int(match[2])


def unit(line, prompt):
    match = re.fullmatch(r"1 (\w+) = (\d+) (\w+)\.", line)
    return bool(match) and UNITS.get((match[1], match[3])) == int(match[2])


def clock(line, prompt):
    match = re.fullmatch(r"(\d+):(\d\d) is (\d+):00 \+ (\d+)\.", line)
    if not match:
        return False
    hour, minute, base, minutes = map(int, match.groups())
    return hour * 60 + minute == base * 60 + minutes


def hour_of(line, prompt):
    match = re.fullmatch(r"((\d+) (?:- 60 = \d+|< 60)): (\d+):(\d\d)\.", line)
    if not match or not holds(match[1]):
        return False
    start = re.search(r"after (\d+):\d\d", prompt)
    return int(match[3]) * 60 + int(match[4]) == int(start[1]) * 60 + int(match[2])


def order(line, prompt):
    match = re.fullmatch(r"The (first|second) is (larger|smaller)\.", line)
    if not match:
        return False
    first, second = numbers(prompt)
    if match[1] == "second":
        first, second = second, first
    return first > second if match[2] == "larger" else first < second


def plan(line, prompt):
    """Return whether a plan has the numbers of the story and the operation that its words ask for."""
    match = re.fullmatch(r"(Total|Left): (\d+) ([-+×]) (\d+)\.", line)
    if not match:
        return False
    if len(events(prompt)) > 1:
        return True  # `unplanned` checks plans of several steps
    [(asked, _)] = events(prompt)
    return match[3] == asked and sorted(numbers(prompt)) == sorted((int(match[2]), int(match[4])))


def unplanned(lines, prompt):
    """Return the wrong plans of a story with two events; the second starts from the result of the first."""
    happened = events(prompt)
    if len(happened) < 2:
        return []
    has, expected = numbers(prompt)[0], []
    for sign, number in happened:
        expected.append(f"{'Total' if sign == '+' else 'Left'}: {has} {sign} {number}.")
        has += number if sign == "+" else -number
    plans = [line for line in lines if line.startswith(("Total", "Left"))]
    return [] if plans == expected else plans


def events(prompt):
    sign = {"buys": "+", "gives away": "-", "fills": "×"}
    return [(sign[word], int(number)) for word, number in re.findall(r"\b(buys|gives away|fills) (\d+)", prompt)]


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def holds(text):
    """Return whether `left = right`, `left < right` or `left > right` is true."""
    match = re.fullmatch(r"([^=<>]+) ([=<>]) ([^=<>]+)", text)
    if not match:
        return False
    left, right = value(match[1]), value(match[3])
    if left is None or right is None:
        return False
    return {"=": left == right, "<": left < right, ">": left > right}[match[2]]


def value(text):
    """Return the value of an integer expression, or None if it is invalid."""
    if not re.fullmatch(r"[-+×/()\d ]+", text):
        return None
    python = re.sub(r"\d+", lambda digits: f"Fraction({int(digits[0])})", text).replace("×", "*")
    return eval(python, {"Fraction": Fraction})
