"""Products of a number and a digit, with carrying."""

import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute

_PROMPT = re.compile(r"(?:What is (\d+) × (\d+)\?|Multiply (\d+) by (\d+)\.)")
_DIGITS: dict[Difficulty, tuple[int, int]] = {"easy": (2, 3), "medium": (4, 6), "hard": (7, 9)}


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a product of a number of two digits and a digit."""
    a, digit = rng.randint(11, 99), rng.randint(*_DIGITS[difficulty])
    worked = columns.multiply(a, digit)
    prompt = rng.choice((f"What is {a} × {digit}?", f"Multiply {a} by {digit}."))
    return ReasoningProblem(prompt=prompt, steps=compute(*worked.lines), answer=worked.result)


def verify(prompt: str) -> str | None:
    """Return the product of the two numbers in the prompt."""
    if not _PROMPT.fullmatch(prompt):
        return None
    a, digit = (int(number) for number in re.findall(r"\d+", prompt))
    return str(a * digit)


KIND = Kind(name="multiplication", category="arithmetic", draw=draw, verify=verify)
