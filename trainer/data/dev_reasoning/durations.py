"""Clock times: how long something lasted, and when it ends."""

import datetime
import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute, setup

_BETWEEN = re.compile(r"How many minutes from (\d+:\d\d) to (\d+:\d\d)\?")
_AFTER = re.compile(r"What time is (\d+) minutes after (\d+:\d\d)\?")


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
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


def verify(prompt: str) -> str | None:
    """Return the minutes between two times, or the time of the end, by the clock of `datetime`."""
    if match := _BETWEEN.fullmatch(prompt):
        return str((_time(match[2]) - _time(match[1])) // datetime.timedelta(minutes=1))
    if match := _AFTER.fullmatch(prompt):
        end = _time(match[2]) + datetime.timedelta(minutes=int(match[1]))
        return f"{end.hour}:{end:%M}"
    return None


def _time(clock: str) -> datetime.datetime:
    return datetime.datetime.strptime(f"{clock} +0000", "%H:%M %z")


KIND = Kind(name="duration", category="duration", draw=draw, verify=verify)
