"""Problems of bare numbers: sums, differences, products with a digit, comparisons, and edge cases.

Sums carry and differences borrow; numbers are compared from the left, digit by digit. Edge cases are those where the
rule of thumb fails: nothing to add, equal numbers, results below zero, leap years.
"""

import calendar
import random
import re

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.columns import PLACES
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, Step, compute, setup

_ADDITION_PROMPT = re.compile(r"What is (\d+) \+ (\d+)\?|Add (\d+) and (\d+)\.")
_SUM_RANGES: dict[Difficulty, tuple[int, int]] = {"easy": (11, 49), "medium": (11, 99), "hard": (101, 999)}


def draw_addition(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a sum of two numbers of equal length."""
    low, high = _SUM_RANGES[difficulty]
    a, b = rng.randint(low, high), rng.randint(low, high)
    worked = columns.add(a, b)
    prompt = rng.choice((f"What is {a} + {b}?", f"Add {a} and {b}."))
    return ReasoningProblem(prompt=prompt, steps=compute(*worked.lines), answer=worked.result)


def verify_addition(prompt: str) -> str | None:
    """Return the sum of the two numbers in the prompt."""
    if not _ADDITION_PROMPT.fullmatch(prompt):
        return None
    return str(sum(int(number) for number in re.findall(r"\d+", prompt)))


ADDITION = Kind(name="addition", category="arithmetic", draw=draw_addition, verify=verify_addition)


_SUBTRACTION_PROMPT = re.compile(r"What is (?P<a>\d+) - (?P<b>\d+)\?|Subtract (?P<b_>\d+) from (?P<a_>\d+)\.")


def draw_subtraction(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a difference of two unequal numbers of equal length."""
    low, high = _SUM_RANGES[difficulty]
    b, a = sorted(rng.sample(range(low, high + 1), 2))
    worked = columns.subtract(a, b)
    prompt = rng.choice((f"What is {a} - {b}?", f"Subtract {b} from {a}."))
    return ReasoningProblem(prompt=prompt, steps=compute(*worked.lines), answer=worked.result)


def verify_subtraction(prompt: str) -> str | None:
    """Return the difference of the two numbers in the prompt."""
    match = _SUBTRACTION_PROMPT.fullmatch(prompt)
    if not match:
        return None
    return str(int(match["a"] or match["a_"]) - int(match["b"] or match["b_"]))


SUBTRACTION = Kind(name="subtraction", category="arithmetic", draw=draw_subtraction, verify=verify_subtraction)


_MULTIPLICATION_PROMPT = re.compile(r"(?:What is (\d+) × (\d+)\?|Multiply (\d+) by (\d+)\.)")
_DIGITS: dict[Difficulty, tuple[int, int]] = {"easy": (2, 3), "medium": (4, 6), "hard": (7, 9)}


def draw_multiplication(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a product of a number of two digits and a digit."""
    a, digit = rng.randint(11, 99), rng.randint(*_DIGITS[difficulty])
    worked = columns.multiply(a, digit)
    prompt = rng.choice((f"What is {a} × {digit}?", f"Multiply {a} by {digit}."))
    return ReasoningProblem(prompt=prompt, steps=compute(*worked.lines), answer=worked.result)


def verify_multiplication(prompt: str) -> str | None:
    """Return the product of the two numbers in the prompt."""
    if not _MULTIPLICATION_PROMPT.fullmatch(prompt):
        return None
    a, digit = (int(number) for number in re.findall(r"\d+", prompt))
    return str(a * digit)


MULTIPLICATION = Kind(
    name="multiplication", category="arithmetic", draw=draw_multiplication, verify=verify_multiplication
)


_WHICH = re.compile(r"Which is (larger|smaller), (\d+) or (\d+)\?")
_IS = re.compile(r"Is (\d+) (larger|smaller) than (\d+)\?")


def draw_comparison(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
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


def verify_comparison(prompt: str) -> str | None:
    """Return the larger or the smaller of the two numbers in the prompt, or whether the first is it."""
    if (match := _WHICH.fullmatch(prompt)) and match[2] != match[3]:
        return str((max if match[1] == "larger" else min)(int(match[2]), int(match[3])))
    if match := _IS.fullmatch(prompt):
        a, b = int(match[1]), int(match[3])
        return "yes" if (a > b if match[2] == "larger" else a < b) else "no"
    return None


COMPARISON = Kind(name="comparison", category="comparison", draw=draw_comparison, verify=verify_comparison)


_NEUTRAL = re.compile(r"What is (\d+) ([-+×]) (\d+)\?")
_EQUAL = re.compile(r"Which is (?:larger|smaller), (\d+) or \1\?")
_LEAP = re.compile(r"Is (\d+) a leap year\?")


def draw_edge_case(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
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


def verify_edge_case(prompt: str) -> str | None:
    """Return the answer by Python's own arithmetic and calendar."""
    if _EQUAL.fullmatch(prompt):
        return "equal"
    if match := _LEAP.fullmatch(prompt):
        return "yes" if calendar.isleap(int(match[1])) else "no"
    if match := _NEUTRAL.fullmatch(prompt):
        a, b = int(match[1]), int(match[3])
        return str({"+": a + b, "-": a - b, "×": a * b}[match[2]])
    return None


EDGE_CASE = Kind(name="edge_case", category="edge_case", draw=draw_edge_case, verify=verify_edge_case)
