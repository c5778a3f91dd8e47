"""Solves prompts of `trainer.data.builtin.reasoning` from their text alone, with Python's arithmetic and calendar."""

import calendar
import datetime
import re
from collections.abc import Callable
from fractions import Fraction

UNITS: tuple[dict[str, int], ...] = (
    {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1},
    {"km": 1_000_000, "m": 1000, "cm": 10, "mm": 1},
    {"kg": 1000, "g": 1},
)
MONTHS = "March|April|May|June|July|August|September|October|November"


def date(days: str, day: str, month: str) -> str:
    start = datetime.datetime.strptime(f"{day} {month} 2023 +0000", "%d %B %Y %z")
    end = start + datetime.timedelta(days=int(days))
    return f"{end.day} {end:%B}"


def clock(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(f"{text} +0000", "%H:%M %z")


def end_of_span(minutes: str, start: str) -> str:
    end = clock(start) + datetime.timedelta(minutes=int(minutes))
    return f"{end.hour}:{end:%M}"


def convert(unit: str, number: str, given: str) -> str | None:
    table = next((table for table in UNITS if unit in table and given in table), None)
    return str(Fraction(int(number) * table[given], table[unit])) if table else None


def compare(a: str, relation: str, b: str) -> str:
    return "yes" if (int(a) > int(b) if relation == "larger" else int(a) < int(b)) else "no"


def choose(relation: str, a: str, b: str) -> str:
    return "equal" if a == b else str((max if relation == "larger" else min)(int(a), int(b)))


def calculate(a: str, sign: str, b: str) -> str:
    return str({"+": int(a) + int(b), "-": int(a) - int(b), "×": int(a) * int(b)}[sign])


PATTERNS: tuple[tuple[str, Callable[..., str | None]], ...] = (
    (r"What is (\d+) ([-+×]) (\d+)\?", calculate),
    (r"Add (\d+) and (\d+)\.", lambda a, b: calculate(a, "+", b)),
    (r"Subtract (\d+) from (\d+)\.", lambda b, a: calculate(a, "-", b)),
    (r"Multiply (\d+) by (\d+)\.", lambda a, b: calculate(a, "×", b)),
    (
        r"(\w+) has (\d+) (\w+) and buys (\d+) more\. How many \3 does \1 have\?",
        lambda n, a, t, b: calculate(a, "+", b),
    ),
    (r"(\w+) has (\d+) (\w+) and gives away (\d+)\. How many \3 are left\?", lambda n, a, t, b: calculate(a, "-", b)),
    (r"(\w+) fills (\d+) boxes with (\d+) (\w+) each\. How many \4 is that\?", lambda n, a, b, t: calculate(a, "×", b)),
    (
        r"(\w+) has (\d+) (\w+), buys (\d+) more and gives away (\d+)\. How many \3 does \1 have\?",
        lambda name, start, things, more, fewer: str(int(start) + int(more) - int(fewer)),
    ),
    (
        r"(\w+) has (\d+) (\w+), gives away (\d+) and buys (\d+) more\. How many \3 does \1 have\?",
        lambda name, start, things, fewer, more: str(int(start) + int(more) - int(fewer)),
    ),
    (r"Which is (larger|smaller), (\d+) or (\d+)\?", choose),
    (r"Is (\d+) (larger|smaller) than (\d+)\?", compare),
    (r"Is (\d+) a leap year\?", lambda year: "yes" if calendar.isleap(int(year)) else "no"),
    (rf"What date is (\d+) days after (\d+) ({MONTHS})\?", date),
    (
        r"How many minutes from (\d+:\d\d) to (\d+:\d\d)\?",
        lambda start, end: str((clock(end) - clock(start)) // datetime.timedelta(minutes=1)),
    ),
    (r"What time is (\d+) minutes after (\d+:\d\d)\?", end_of_span),
    (r"How many (\w+) are (\d+) (\w+)\?", convert),
)


def solve(prompt: str) -> str | None:
    """Return the answer, or None if no pattern fits."""
    return next((solver(*match.groups()) for text, solver in PATTERNS if (match := re.fullmatch(text, prompt))), None)
