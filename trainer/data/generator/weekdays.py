"""Days of the week before and after a given one: whole weeks taken off first, then counted day by day."""

import datetime
import random
import re

from trainer.data.generator.problem import Difficulty, Kind, Problem, compute

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PROMPT = re.compile(rf"What day is (\d+) days (after|before) ({'|'.join(_DAYS)})\?")
_RANGES: dict[Difficulty, tuple[int, int]] = {"easy": (2, 6), "medium": (8, 13), "hard": (15, 34)}
_A_MONDAY = datetime.date(2024, 1, 1)


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a question for the day that is some days after or before another."""
    low, high = _RANGES[difficulty]
    days = rng.choice([number for number in range(low, high + 1) if number % 7])
    day, way = rng.choice(_DAYS), rng.choice(("after", "before"))
    prompt = f"What day is {days} days {way} {day}?"
    weeks, rest = divmod(days, 7)
    step = 1 if way == "after" else -1
    counted = [_DAYS[(_DAYS.index(day) + step * number) % 7] for number in range(1, rest + 1)]
    return Problem(
        prompt=prompt,
        steps=compute(
            f"{days} = {weeks} × 7 + {rest}.",
            f"{day}, " + ", ".join(f"{number} {name}" for number, name in enumerate(counted, 1)) + ".",
        ),
        answer=counted[-1],
    )


def verify(prompt: str) -> str | None:
    """Return the day, found by counting in the calendar from a known date."""
    if match := _PROMPT.fullmatch(prompt):
        return _weekday(match[3], int(match[1]) if match[2] == "after" else -int(match[1]))
    return None


def _weekday(start: str, days: int) -> str:
    date = _A_MONDAY + datetime.timedelta(days=_DAYS.index(start) + days)
    return f"{date:%A}"


KIND = Kind(name="weekday", category="date", draw=draw, verify=verify)
