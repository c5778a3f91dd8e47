"""Conversion between units: by powers of ten, and weeks and hours by written multiplication."""

import random
import re
from fractions import Fraction

from trainer.data.generator import columns
from trainer.data.generator.problem import Difficulty, Kind, Problem, compute, setup

_DECIMAL = (
    ("metre", "centimetre", 100),
    ("kilometre", "metre", 1000),
    ("kilogram", "gram", 1000),
    ("centimetre", "millimetre", 10),
    ("litre", "millilitre", 1000),
)
_PROMPT = re.compile(r"How many (\w+)s are (\d+) (\w+)s\?")
_SECONDS = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
_METRES = {"kilometre": 1000, "metre": 1, "centimetre": Fraction(1, 100), "millimetre": Fraction(1, 1000)}
_GRAMS = {"kilogram": 1000, "gram": 1}
_LITRES = {"litre": 1, "millilitre": Fraction(1, 1000)}


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a conversion: to a smaller unit if easy, to a larger one if medium, of time if hard."""
    if difficulty == "hard":
        return _time(rng)
    large, small, factor = rng.choice(_DECIMAL)
    number = rng.randint(2, 99)
    line = f"1 {large} = {factor} {small}s."
    zeros = str(factor)[1:]
    if difficulty == "easy":
        return Problem(
            prompt=f"How many {small}s are {number} {large}s?",
            steps=setup(line) + compute(f"{number} × {factor} = {number}{zeros}."),
            answer=f"{number}{zeros}",
        )
    return Problem(
        prompt=f"How many {large}s are {number}{zeros} {small}s?",
        steps=setup(line) + compute(f"{number}{zeros} / {factor} = {number}."),
        answer=str(number),
    )


def _time(rng: random.Random) -> Problem:
    large, small, digit, zero = rng.choice((("week", "day", 7, ""), ("hour", "minute", 6, "0"), ("minute", "second", 6, "0")))
    number = rng.randint(11, 99)
    worked = columns.multiply(number, digit)
    last = compute(f"{worked.result} × 10 = {worked.result}0.") if zero else ()
    return Problem(
        prompt=f"How many {small}s are {number} {large}s?",
        steps=setup(f"1 {large} = {digit}{zero} {small}s.") + compute(*worked.lines) + last,
        answer=worked.result + zero,
    )


def verify(prompt: str) -> str | None:
    """Return the converted number, by way of the base unit of the table that knows both units."""
    match = _PROMPT.fullmatch(prompt)
    if not match:
        return None
    for table in (_SECONDS, _METRES, _GRAMS, _LITRES):
        if match[1] in table and match[3] in table:
            return str(int(match[2]) * Fraction(table[match[3]]) / table[match[1]])
    return None


KIND = Kind(name="unit_conversion", category="unit_conversion", draw=draw, verify=verify)
