"""Which of two numbers is larger or smaller, read from the left, digit by digit."""

import random
import re

from trainer.data.generator.columns import PLACES
from trainer.data.generator.problem import Difficulty, Kind, Problem, Step, compute

_PROMPT = re.compile(r"Which is (larger|smaller), (\d+) or (\d+)\?")


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a comparison: of two-digit numbers, of three-digit numbers, or of those that begin alike."""
    a, b = _pair(rng, difficulty)
    asked = rng.choice(("larger", "smaller"))
    steps, sign = _compared(a, b)
    first = (sign == ">") == (asked == "larger")
    return Problem(prompt=f"Which is {asked}, {a} or {b}?", steps=steps, answer=str(a if first else b))


def _pair(rng: random.Random, difficulty: Difficulty) -> tuple[int, int]:
    if difficulty == "easy":
        a, b = rng.sample(range(11, 100), 2)
    elif difficulty == "medium":
        a, b = rng.sample(range(101, 1000), 2)
    else:
        a = rng.randint(101, 999)
        size = rng.choice((10, 100))
        start = max(a // size * size, 101)
        b = rng.choice([number for number in range(start, a // size * size + size) if number != a])
    return a, b


def _compared(a: int, b: int) -> tuple[tuple[Step, ...], str]:
    lines = []
    for place, x, y in zip(reversed(PLACES[: len(str(a))]), str(a), str(b), strict=True):
        sign = "=" if x == y else ">" if x > y else "<"
        if sign != "=":
            lines.append(f"{place}: {x} {sign} {y}, so {a} {sign} {b}.")
            break
        lines.append(f"{place}: {x} = {y}.")
    return compute(*lines), sign


def verify(prompt: str) -> str | None:
    """Return the larger or the smaller of the two numbers in the prompt."""
    match = _PROMPT.fullmatch(prompt)
    if not match or match[2] == match[3]:
        return None
    return str((max if match[1] == "larger" else min)(int(match[2]), int(match[3])))


KIND = Kind(name="comparison", category="comparison", draw=draw, verify=verify)
