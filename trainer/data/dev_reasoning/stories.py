"""Short stories that request one calculation, or two, one after the other."""

import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, Step, compute, setup

NAMES = ("Mia", "Tom", "Ana", "Ben")
THINGS = ("apples", "books", "coins", "cards")
LOWEST = 11
HIGHEST: dict[Difficulty, int] = {"easy": 49, "medium": 79, "hard": 99}
_MORE = re.compile(r"(\w+) has (\d+) (\w+) and buys (\d+) more\. How many \3 does \1 have\?")
_FEWER = re.compile(r"(\w+) has (\d+) (\w+) and gives away (\d+)\. How many \3 are left\?")
_BOXES = re.compile(r"(\w+) fills (\d+) boxes with (\d+) (\w+) each\. How many \4 is that\?")


def draw_story(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
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


def verify_story(prompt: str) -> str | None:
    """Return the number that the story ends with."""
    if match := _MORE.fullmatch(prompt):
        return str(int(match[2]) + int(match[4]))
    if match := _FEWER.fullmatch(prompt):
        return str(int(match[2]) - int(match[4]))
    if match := _BOXES.fullmatch(prompt):
        return str(int(match[2]) * int(match[3]))
    return None


STORY = Kind(name="word_problem", category="word_problem", draw=draw_story, verify=verify_story)


_PROMPT = re.compile(
    r"(?P<name>\w+) has (?P<start>\d+) (?P<things>\w+), "
    r"(?:buys (?P<more>\d+) more and gives away (?P<fewer>\d+)|gives away (?P<fewer_>\d+) and buys (?P<more_>\d+) more)"
    r"\. How many (?P=things) does (?P=name) have\?"
)


def draw_two_step_story(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a story that buys first or gives away first; every number has two digits, and no one owes anything."""
    name, things, highest = rng.choice(NAMES), rng.choice(THINGS), HIGHEST[difficulty]
    if rng.random() < 0.5:
        start = rng.randint(LOWEST, highest - LOWEST)
        more = rng.randint(LOWEST, highest - start)
        fewer = rng.randint(LOWEST, start + more - 1)
        happens = f"buys {more} more and gives away {fewer}"
        total, steps = _buy(start, more)
        answer, rest = _give_away(total, fewer)
    else:
        start = rng.randint(LOWEST + 1, highest)
        fewer = rng.randint(LOWEST, start - 1)
        more = rng.randint(LOWEST, highest - (start - fewer))
        happens = f"gives away {fewer} and buys {more} more"
        left, steps = _give_away(start, fewer)
        answer, rest = _buy(left, more)
    prompt = f"{name} has {start} {things}, {happens}. How many {things} does {name} have?"
    return ReasoningProblem(prompt=prompt, steps=steps + rest, answer=str(answer))


def _buy(has: int, more: int) -> tuple[int, tuple[Step, ...]]:
    worked = columns.add(has, more)
    return int(worked.result), setup(f"Total: {has} + {more}.") + compute(*worked.lines)


def _give_away(has: int, fewer: int) -> tuple[int, tuple[Step, ...]]:
    worked = columns.subtract(has, fewer)
    return int(worked.result), setup(f"Left: {has} - {fewer}.") + compute(*worked.lines)


def verify_two_step_story(prompt: str) -> str | None:
    """Return how many there are at the end of the story."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    return str(int(match["start"]) + int(match["more"] or match["more_"]) - int(match["fewer"] or match["fewer_"]))


TWO_STEP_STORY = Kind(name="two_step_story", category="story", draw=draw_two_step_story, verify=verify_two_step_story)
