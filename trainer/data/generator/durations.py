"""Clock times: how long something lasted, and when it ends."""

import datetime
import random
import re

from trainer.data.generator.problem import Difficulty, Kind, Problem, compute

_BETWEEN = re.compile(r"How many minutes are from (\d+:\d\d) to (\d+:\d\d)\?")
_END = re.compile(r"A lesson of (\d+) minutes starts at (\d+:\d\d)\. When does it end\?")


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a question on a time span in steps of five minutes; past the full hour unless easy."""
    hour = rng.randint(1, 22)
    start = rng.randrange(5, 60, 5)
    if difficulty == "easy":
        end = rng.randrange(start + 5, 65, 5) if start < 55 else 60
    else:
        end = rng.randrange(65, min(start + 60, 120), 5)
    return rng.choice((_between, _end))(hour, start, end)


def _between(hour: int, start: int, end: int) -> Problem:
    if end <= 60:
        steps = compute(f"{end} - {start} = {end - start}.")
    else:
        steps = compute(
            f"Up to {hour + 1}:00: 60 - {start} = {60 - start}.",
            f"Then {end - 60}: {60 - start} + {end - 60} = {end - start}.",
        )
    return Problem(
        prompt=f"How many minutes are from {_clock(hour, start)} to {_clock(hour, end)}?",
        steps=steps,
        answer=str(end - start),
    )


def _end(hour: int, start: int, end: int) -> Problem:
    steps = compute(f"{start} + {end - start} = {end}.")
    if end >= 60:
        steps += compute(f"{end} - 60 = {end - 60}, one hour more.")
    return Problem(
        prompt=f"A lesson of {end - start} minutes starts at {_clock(hour, start)}. When does it end?",
        steps=steps,
        answer=_clock(hour, end),
    )


def _clock(hour: int, minute: int) -> str:
    return f"{hour + minute // 60}:{minute % 60:02}"


def verify(prompt: str) -> str | None:
    """Return the minutes between two times, or the time of the end, by the clock of `datetime`."""
    if match := _BETWEEN.fullmatch(prompt):
        return str((_time(match[2]) - _time(match[1])) // datetime.timedelta(minutes=1))
    if match := _END.fullmatch(prompt):
        end = _time(match[2]) + datetime.timedelta(minutes=int(match[1]))
        return f"{end.hour}:{end:%M}"
    return None


def _time(clock: str) -> datetime.datetime:
    return datetime.datetime.strptime(f"{clock} +0000", "%H:%M %z")


KIND = Kind(name="duration", category="duration", draw=draw, verify=verify)
