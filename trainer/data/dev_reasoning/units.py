"""Conversion between units: by powers of ten, and weeks and hours by written multiplication."""

import random
import re
from fractions import Fraction

from trainer.data.dev_reasoning import columns
from trainer.data.dev_reasoning.problem import Difficulty, Kind, ReasoningProblem, compute, setup

_DECIMAL = (("m", "cm", 100), ("km", "m", 1000), ("cm", "mm", 10), ("kg", "g", 1000))
_TIME = (("weeks", "days", 7, ""), ("hours", "minutes", 6, "0"), ("minutes", "seconds", 6, "0"))
_PROMPT = re.compile(r"How many (\w+) are (\d+) (\w+)\?")
_TABLES: tuple[dict[str, int], ...] = (
    {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1},
    {"km": 1_000_000, "m": 1000, "cm": 10, "mm": 1},
    {"kg": 1000, "g": 1},
)
"""Each unit in the smallest of its kind."""


def draw(rng: random.Random, difficulty: Difficulty) -> ReasoningProblem:
    """Return a conversion: to a smaller unit if easy, to a larger one if medium, of time if hard."""
    if difficulty == "hard":
        return _time(rng)
    large, small, factor = rng.choice(_DECIMAL)
    number = rng.randint(2, 999)
    line = f"1 {large} = {factor} {small}."
    zeros = str(factor)[1:]
    if difficulty == "easy":
        return ReasoningProblem(
            prompt=f"How many {small} are {number} {large}?",
            steps=setup(line) + compute(f"{number} × {factor} = {number}{zeros}."),
            answer=f"{number}{zeros}",
        )
    return ReasoningProblem(
        prompt=f"How many {large} are {number}{zeros} {small}?",
        steps=setup(line) + compute(f"{number}{zeros} / {factor} = {number}."),
        answer=str(number),
    )


def _time(rng: random.Random) -> ReasoningProblem:
    large, small, digit, zero = rng.choice(_TIME)
    number = rng.randint(11, 99)
    worked = columns.multiply(number, digit)
    last = compute(f"{worked.result} × 10 = {worked.result}0.") if zero else ()
    return ReasoningProblem(
        prompt=f"How many {small} are {number} {large}?",
        steps=setup(f"1 {large.removesuffix('s')} = {digit}{zero} {small}.") + compute(*worked.lines) + last,
        answer=worked.result + zero,
    )


def verify(prompt: str) -> str | None:
    """Return the converted number, by way of the base unit of the table that knows both units."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    table = next((table for table in _TABLES if match[1] in table and match[3] in table), None)
    return str(Fraction(int(match[2]) * table[match[3]], table[match[1]])) if table else None


KIND = Kind(name="unit_conversion", category="unit_conversion", draw=draw, verify=verify)
