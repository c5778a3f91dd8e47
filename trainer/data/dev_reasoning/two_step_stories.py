"""Short stories in which something is bought and something given away: two calculations, one after the other."""

import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, Step, compute, setup
from trainer.data.dev_reasoning.word_problems import HIGHEST, LOWEST, NAMES, THINGS

_PROMPT = re.compile(
    r"(?P<name>\w+) has (?P<start>\d+) (?P<things>\w+), "
    r"(?:buys (?P<more>\d+) more and gives away (?P<fewer>\d+)|gives away (?P<fewer_>\d+) and buys (?P<more_>\d+) more)"
    r"\. How many (?P=things) does (?P=name) have\?"
)


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
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


def verify(prompt: str) -> str | None:
    """Return how many there are at the end of the story."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    return str(int(match["start"]) + int(match["more"] or match["more_"]) - int(match["fewer"] or match["fewer_"]))


KIND = Kind(name="two_step_story", category="story", draw=draw, verify=verify)
