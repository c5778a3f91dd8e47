"""Differences of two numbers, with borrowing; never below zero, which `edge_cases` does."""

import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute

_PROMPT = re.compile(r"What is (?P<a>\d+) - (?P<b>\d+)\?|Subtract (?P<b_>\d+) from (?P<a_>\d+)\.")
_RANGES: dict[Difficulty, tuple[int, int]] = {"easy": (11, 49), "medium": (11, 99), "hard": (101, 999)}


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a difference of two unequal numbers of equal length."""
    low, high = _RANGES[difficulty]
    b, a = sorted(rng.sample(range(low, high + 1), 2))
    worked = columns.subtract(a, b)
    prompt = rng.choice((f"What is {a} - {b}?", f"Subtract {b} from {a}."))
    return ReasoningProblem(prompt=prompt, steps=compute(*worked.lines), answer=worked.result)


def verify(prompt: str) -> str | None:
    """Return the difference of the two numbers in the prompt."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    return str(int(match["a"] or match["a_"]) - int(match["b"] or match["b_"]))


KIND = Kind(name="subtraction", category="arithmetic", draw=draw, verify=verify)
