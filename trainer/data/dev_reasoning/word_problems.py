"""Short stories that request one sum, difference or product."""

import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute, setup

NAMES = ("Mia", "Tom", "Ana", "Ben")
THINGS = ("apples", "books", "coins", "cards")
LOWEST = 11
HIGHEST: dict[Difficulty, int] = {"easy": 49, "medium": 79, "hard": 99}
_MORE = re.compile(r"(\w+) has (\d+) (\w+) and buys (\d+) more\. How many \3 does \1 have\?")
_FEWER = re.compile(r"(\w+) has (\d+) (\w+) and gives away (\d+)\. How many \3 are left\?")
_BOXES = re.compile(r"(\w+) fills (\d+) boxes with (\d+) (\w+) each\. How many \4 is that\?")


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a story about having more, having fewer or filling boxes."""
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    return rng.choice((_more, _more, _fewer, _fewer, _boxes))(rng, name, things, HIGHEST[difficulty])


def _more(rng: random.Random, name: str, things: str, highest: int) -> ReasoningProblem:
    a, b = rng.randint(LOWEST, highest), rng.randint(LOWEST, highest)
    worked = columns.add(a, b)
    return ReasoningProblem(
        prompt=f"{name} has {a} {things} and buys {b} more. How many {things} does {name} have?",
        steps=setup(f"Total: {a} + {b}.") + compute(*worked.lines),
        answer=worked.result,
    )


def _fewer(rng: random.Random, name: str, things: str, highest: int) -> ReasoningProblem:
    b, a = sorted(rng.sample(range(LOWEST, highest + 1), 2))
    worked = columns.subtract(a, b)
    return ReasoningProblem(
        prompt=f"{name} has {a} {things} and gives away {b}. How many {things} are left?",
        steps=setup(f"Left: {a} - {b}.") + compute(*worked.lines),
        answer=worked.result,
    )


def _boxes(rng: random.Random, name: str, things: str, highest: int) -> ReasoningProblem:
    boxes, each = rng.randint(2, 9), rng.randint(LOWEST, highest)
    worked = columns.multiply(each, boxes)
    return ReasoningProblem(
        prompt=f"{name} fills {boxes} boxes with {each} {things} each. How many {things} is that?",
        steps=setup(f"Total: {each} × {boxes}.") + compute(*worked.lines),
        answer=worked.result,
    )


def verify(prompt: str) -> str | None:
    """Return the number that the story ends with."""
    if match := _MORE.fullmatch(prompt):
        return str(int(match[2]) + int(match[4]))
    if match := _FEWER.fullmatch(prompt):
        return str(int(match[2]) - int(match[4]))
    if match := _BOXES.fullmatch(prompt):
        return str(int(match[2]) * int(match[3]))
    return None


KIND = Kind(name="word_problem", category="word_problem", draw=draw, verify=verify)
