"""Questions where the rule of thumb fails: nothing to add, equal numbers, results below zero, leap years."""

import calendar
import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.comparisons import compare_digits
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute, setup

_NEUTRAL = re.compile(r"What is (\d+) ([-+×]) (\d+)\?")
_EQUAL = re.compile(r"Which is (?:larger|smaller), (\d+) or \1\?")
_LEAP = re.compile(r"Is (\d+) a leap year\?")


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a question with 0 or 1 if easy, with equal numbers or a leap year if medium, below zero if hard."""
    if difficulty == "easy":
        return _neutral(rng)
    if difficulty == "medium":
        return rng.choice((_equal, _leap))(rng)
    return _below_zero(rng)


def _neutral(rng: random.Random) -> ReasoningProblem:
    n = rng.randint(2, 999)
    question, reason, answer = rng.choice(
        (
            (f"{n} + 0", "Adding 0 changes nothing.", n),
            (f"0 + {n}", "Adding 0 changes nothing.", n),
            (f"{n} - 0", "Subtracting 0 changes nothing.", n),
            (f"{n} - {n}", "A number minus itself is 0.", 0),
            (f"{n} × 0", "Anything times 0 is 0.", 0),
            (f"{n} × 1", "Multiplying by 1 changes nothing.", n),
        )
    )
    return ReasoningProblem(prompt=f"What is {question}?", steps=compute(reason), answer=str(answer))


def _equal(rng: random.Random) -> ReasoningProblem:
    n = rng.randint(11, 999)
    asked = rng.choice(("larger", "smaller"))
    steps, _ = compare_digits(n, n)
    steps += compute("Both are equal.")
    return ReasoningProblem(prompt=f"Which is {asked}, {n} or {n}?", steps=steps, answer="equal")


def _leap(rng: random.Random) -> ReasoningProblem:
    year = rng.randint(2001, 2099)
    fours, rest = divmod(year % 100, 4)
    line = f"{year % 100} = {fours} × 4 + {rest}."
    return ReasoningProblem(prompt=f"Is {year} a leap year?", steps=compute(line), answer="no" if rest else "yes")


def _below_zero(rng: random.Random) -> ReasoningProblem:
    a, b = sorted(rng.sample(range(11, 100), 2))
    worked = columns.subtract(b, a)
    return ReasoningProblem(
        prompt=f"What is {a} - {b}?",
        steps=setup(f"{a} - {b} = -({b} - {a}).") + compute(*worked.lines),
        answer=f"-{worked.result}",
    )


def verify(prompt: str) -> str | None:
    """Return the answer by Python's own arithmetic and calendar."""
    if _EQUAL.fullmatch(prompt):
        return "equal"
    if match := _LEAP.fullmatch(prompt):
        return "yes" if calendar.isleap(int(match[1])) else "no"
    if match := _NEUTRAL.fullmatch(prompt):
        a, b = int(match[1]), int(match[3])
        return str({"+": a + b, "-": a - b, "×": a * b}[match[2]])
    return None


KIND = Kind(name="edge_case", category="edge_case", draw=draw, verify=verify)
