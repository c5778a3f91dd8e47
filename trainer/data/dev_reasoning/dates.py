"""The date some days after another, within a month or into the next. February, whose length varies, is left out."""

import datetime
import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute, setup

_LENGTHS = {
    "March": 31, "April": 30, "May": 31, "June": 30, "July": 31,
    "August": 31, "September": 30, "October": 31, "November": 30,
}  # fmt: skip
_MONTHS = (*_LENGTHS, "December")
_PROMPT = re.compile(rf"What date is (\d+) days after (\d+) ({'|'.join(_LENGTHS)})\?")


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
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


def verify(prompt: str) -> str | None:
    """Return the date, found in the calendar of a year whose February does not matter."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    start = datetime.datetime.strptime(f"{match[2]} {match[3]} 2023 +0000", "%d %B %Y %z")
    end = start + datetime.timedelta(days=int(match[1]))
    return f"{end.day} {end:%B}"


KIND = Kind(name="date", category="date", draw=draw, verify=verify)
