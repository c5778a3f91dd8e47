"""Sums of two numbers, with carrying."""

import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute

_PROMPT = re.compile(r"What is (\d+) \+ (\d+)\?|Add (\d+) and (\d+)\.")
_RANGES: dict[Difficulty, tuple[int, int]] = {"easy": (11, 49), "medium": (11, 99), "hard": (101, 999)}


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a sum of two numbers of equal length."""
    low, high = _RANGES[difficulty]
    a, b = rng.randint(low, high), rng.randint(low, high)
    worked = columns.add(a, b)
    prompt = rng.choice((f"What is {a} + {b}?", f"Add {a} and {b}."))
    return ReasoningProblem(prompt=prompt, steps=compute(*worked.lines), answer=worked.result)


def verify(prompt: str) -> str | None:
    """Return the sum of the two numbers in the prompt."""
    if not _PROMPT.fullmatch(prompt):
        return None
    return str(sum(int(number) for number in re.findall(r"\d+", prompt)))


KIND = Kind(name="addition", category="arithmetic", draw=draw, verify=verify)
