"""Problems of measures: dates some days apart, clock times, and conversion between units.

Dates lie within a month or in the next; February, whose length varies, is left out. Units differ by powers of ten;
weeks and hours are worked by written multiplication.
"""

import datetime
import random
import re
from fractions import Fraction

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute, setup

_LENGTHS = {
    "March": 31, "April": 30, "May": 31, "June": 30, "July": 31,
    "August": 31, "September": 30, "October": 31, "November": 30,
}  # fmt: skip
_MONTHS = (*_LENGTHS, "December")
_DATE_PROMPT = re.compile(rf"What date is (\d+) days after (\d+) ({'|'.join(_LENGTHS)})\?")


def draw_date(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a question for a later date: in the same month if easy, in the next month if hard."""
    month = rng.choice(tuple(_LENGTHS))
    length = _LENGTHS[month]
    stays = difficulty == "easy" or (difficulty == "medium" and rng.random() < 0.5)
    days = rng.randint(11, 25)
    day = rng.randint(2, length - days) if stays else rng.randint(length - days + 1, length - 1)
    worked = columns.add(day, days)
    has = setup(f"{month} has {length} days.")
    if stays:
        return ReasoningProblem(
            prompt=f"What date is {days} days after {day} {month}?",
            steps=has + compute(*worked.lines),
            answer=f"{worked.result} {month}",
        )
    rest, following = int(worked.result) - length, _MONTHS[_MONTHS.index(month) + 1]
    return ReasoningProblem(
        prompt=f"What date is {days} days after {day} {month}?",
        steps=has + compute(*worked.lines, f"{worked.result} - {length} = {rest}."),
        answer=f"{rest} {following}",
    )


def verify_date(prompt: str) -> str | None:
    """Return the date, found in the calendar of a year whose February does not matter."""
    match = _DATE_PROMPT.fullmatch(prompt)
    if not match:
        return None
    start = datetime.datetime.strptime(f"{match[2]} {match[3]} 2023 +0000", "%d %B %Y %z")
    end = start + datetime.timedelta(days=int(match[1]))
    return f"{end.day} {end:%B}"


DATE = Kind(name="date", category="date", draw=draw_date, verify=verify_date)


_BETWEEN = re.compile(r"How many minutes from (\d+:\d\d) to (\d+:\d\d)\?")
_AFTER = re.compile(r"What time is (\d+) minutes after (\d+:\d\d)\?")


def draw_duration(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a question on a time span of less than an hour; past the full hour unless easy."""
    hour = rng.randint(1, 22)
    if difficulty == "easy":
        start = rng.randint(11, 48)
        end = rng.randint(start + 11, 59)
    else:
        start = rng.randint(11, 59)
        end = rng.randint(max(60, start + 11), min(99, start + 59))
    return rng.choice((_between, _after))(hour, start, end)


def _between(hour: int, start: int, end: int) -> ReasoningProblem:
    worked = columns.subtract(end, start)
    return ReasoningProblem(
        prompt=f"How many minutes from {_clock(hour, start)} to {_clock(hour, end)}?",
        steps=setup(f"{_clock(hour, end)} is {hour}:00 + {end}.") + compute(*worked.lines),
        answer=worked.result,
    )


def _after(hour: int, start: int, end: int) -> ReasoningProblem:
    worked = columns.add(start, end - start)
    hours = f"{end} - 60 = {end - 60}" if end >= 60 else f"{end} < 60"
    return ReasoningProblem(
        prompt=f"What time is {end - start} minutes after {_clock(hour, start)}?",
        steps=compute(*worked.lines, f"{hours}: {_clock(hour, end)}."),
        answer=_clock(hour, int(worked.result)),
    )


def _clock(hour: int, minute: int) -> str:
    return f"{hour + minute // 60}:{minute % 60:02}"


def verify_duration(prompt: str) -> str | None:
    """Return the minutes between two times, or the time of the end, by the clock of `datetime`."""
    if match := _BETWEEN.fullmatch(prompt):
        return str((_duration_time(match[2]) - _duration_time(match[1])) // datetime.timedelta(minutes=1))
    if match := _AFTER.fullmatch(prompt):
        end = _duration_time(match[2]) + datetime.timedelta(minutes=int(match[1]))
        return f"{end.hour}:{end:%M}"
    return None


def _duration_time(clock: str) -> datetime.datetime:
    return datetime.datetime.strptime(f"{clock} +0000", "%H:%M %z")


DURATION = Kind(name="duration", category="duration", draw=draw_duration, verify=verify_duration)


_DECIMAL = (("m", "cm", 100), ("km", "m", 1000), ("cm", "mm", 10), ("kg", "g", 1000))
_TIME = (("weeks", "days", 7, ""), ("hours", "minutes", 6, "0"), ("minutes", "seconds", 6, "0"))
_CONVERSION_PROMPT = re.compile(r"How many (\w+) are (\d+) (\w+)\?")
_TABLES: tuple[dict[str, int], ...] = (
    {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1},
    {"km": 1_000_000, "m": 1000, "cm": 10, "mm": 1},
    {"kg": 1000, "g": 1},
)
"""Each unit in the smallest of its kind."""


def draw_conversion(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a conversion: to a smaller unit if easy, to a larger one if medium, of time if hard."""
    if difficulty == "hard":
        return _conversion_time(rng)
    large, small, factor = rng.choice(_DECIMAL)
    number = rng.randint(2, 999)
    line = f"1 {large} = {factor} {small}."
    zeros = str(factor)[1:]
    if difficulty == "easy":
        return ReasoningProblem(
            prompt=f"How many {small} are {number} {large}?",
            steps=setup(line) + compute(f"{number} × {factor} = {number}{zeros}."),
            answer=f"{number}{zeros}",
        )
    return ReasoningProblem(
        prompt=f"How many {large} are {number}{zeros} {small}?",
        steps=setup(line) + compute(f"{number}{zeros} / {factor} = {number}."),
        answer=str(number),
    )


def _conversion_time(rng: random.Random) -> ReasoningProblem:
    large, small, digit, zero = rng.choice(_TIME)
    number = rng.randint(11, 99)
    worked = columns.multiply(number, digit)
    last = compute(f"{worked.result} × 10 = {worked.result}0.") if zero else ()
    return ReasoningProblem(
        prompt=f"How many {small} are {number} {large}?",
        steps=setup(f"1 {large.removesuffix('s')} = {digit}{zero} {small}.") + compute(*worked.lines) + last,
        answer=worked.result + zero,
    )


def verify_conversion(prompt: str) -> str | None:
    """Return the converted number, by way of the base unit of the table that knows both units."""
    match = _CONVERSION_PROMPT.fullmatch(prompt)
    if not match:
        return None
    table = next((table for table in _TABLES if match[1] in table and match[3] in table), None)
    return str(Fraction(int(match[2]) * table[match[3]], table[match[1]])) if table else None


CONVERSION = Kind(name="unit_conversion", category="unit_conversion", draw=draw_conversion, verify=verify_conversion)
