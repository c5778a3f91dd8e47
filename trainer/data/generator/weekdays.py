"""Days of the week before and after a given one, with whole weeks taken off first."""

import datetime
import random
import re

from trainer.data.generator.problem import Difficulty, Kind, Problem, compute

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PROMPT = re.compile(rf"What day is (\d+) days (after|before) ({'|'.join(_DAYS)})\?")
_RANGES: dict[Difficulty, tuple[int, int]] = {"easy": (2, 6), "medium": (7, 20), "hard": (21, 48)}
_A_MONDAY = datetime.date(2024, 1, 1)


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a question for the day that is some days after or before another."""
    days, day = rng.randint(*_RANGES[difficulty]), rng.randrange(7)
    way = rng.choice(("after", "before"))
    weeks, rest = divmod(days, 7)
    answer = _DAYS[(day + rest if way == "after" else day - rest) % 7]
    return Problem(
        prompt=f"What day is {days} days {way} {_DAYS[day]}?",
        steps=compute(f"{days} = {weeks} × 7 + {rest}.", f"{rest} days {way} {_DAYS[day]}: {answer}."),
        answer=answer,
    )


def verify(prompt: str) -> str | None:
    """Return the day, found by counting in the calendar from a known date."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    start = _A_MONDAY + datetime.timedelta(days=_DAYS.index(match[3]))
    days = datetime.timedelta(days=int(match[1]))
    return _DAYS[(start + days if match[2] == "after" else start - days).weekday()]


KIND = Kind(name="weekday", category="date", draw=draw, verify=verify)
