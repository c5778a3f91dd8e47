"""Which of two numbers is larger or smaller, read from the left, digit by digit."""

import random
import re

from trainer.data.dev_reasoning.columns import PLACES
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, Step, compute

_WHICH = re.compile(r"Which is (larger|smaller), (\d+) or (\d+)\?")
_IS = re.compile(r"Is (\d+) (larger|smaller) than (\d+)\?")


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a comparison: of two-digit numbers, of three-digit numbers, or of those that begin alike."""
    a, b = _pair(rng, difficulty)
    asked = rng.choice(("larger", "smaller"))
    steps, sign = compare_digits(a, b)
    is_first = (sign == ">") == (asked == "larger")
    if rng.random() < 0.5:
        answer = "yes" if is_first else "no"
        return ReasoningProblem(prompt=f"Is {a} {asked} than {b}?", steps=steps, answer=answer)
    steps += compute(f"The {'first' if is_first else 'second'} is {asked}.")
    return ReasoningProblem(prompt=f"Which is {asked}, {a} or {b}?", steps=steps, answer=str(a if is_first else b))


def _pair(rng: random.Random, difficulty: Difficulty) -> tuple[int, int]:
    if difficulty == "easy":
        a, b = rng.sample(range(11, 100), 2)
    elif difficulty == "medium":
        a, b = rng.sample(range(101, 1000), 2)
    else:
        size = rng.choice((10, 100))
        start = rng.randrange(200, 1000, size)
        a, b = rng.sample(range(start, start + size), 2)
    return a, b


def compare_digits(a: int, b: int) -> tuple[tuple[Step, ...], str]:
    """Return the digits of two numbers of equal length compared from the left, and the sign that decides.

    Example: 473 and 458 are `Hundreds: 4 = 4.`, `Tens: 7 > 5.`, sign `>`.
    """
    lines = []
    for place, x, y in zip(reversed(PLACES[: len(str(a))]), str(a), str(b), strict=True):
        sign = "=" if x == y else ">" if x > y else "<"
        lines.append(f"{place}: {x} {sign} {y}.")
        if sign != "=":
            break
    return compute(*lines), sign


def verify(prompt: str) -> str | None:
    """Return the larger or the smaller of the two numbers in the prompt, or whether the first is it."""
    if (match := _WHICH.fullmatch(prompt)) and match[2] != match[3]:
        return str((max if match[1] == "larger" else min)(int(match[2]), int(match[3])))
    if match := _IS.fullmatch(prompt):
        a, b = int(match[1]), int(match[3])
        return "yes" if (a > b if match[2] == "larger" else a < b) else "no"
    return None


KIND = Kind(name="comparison", category="comparison", draw=draw, verify=verify)
