"""Drawing many problems from one seed, each prompt once and none that is excluded, every answer verified."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainer.data.dev_reasoning.catalog import Shares, solve
from trainer.data.dev_reasoning.problem import DIFFICULTIES, Difficulty, Kind, ReasoningProblem

PATIENCE = 1000
"""Draws in a row without a new prompt after which the kinds count as exhausted."""


@dataclass(frozen=True, kw_only=True)
class DrawnProblem:
    """A problem with where it comes from."""

    kind: Kind
    difficulty: Difficulty
    problem: ReasoningProblem


def prompt_key(prompt: str) -> str:
    """Return what two prompts share if they differ only in case, white space or punctuation.

    Signs of arithmetic count as punctuation, so `12 + 5` and `12 - 5` share a key: one of them is lost, none leaks.
    """
    return " ".join(re.findall(r"[a-z0-9]+", prompt.casefold()))


def draw_problems(seed: int, shares: Shares, *, excluded_keys: frozenset[str]) -> Iterator[DrawnProblem]:
    """Yield problems without end, in their shares, no two with the same key.

    Args:
        seed: decides everything.
        shares: kinds to draw, and how often each.
        excluded_keys: keys of prompts that must not appear (see `prompt_key`).

    Raises:
        ValueError: no new prompt is left to draw.
        AssertionError: a kind gave an answer that is not its prompt's.
    """
    rng = random.Random(seed)  # noqa: S311 - data, not secrets
    kinds, percent = zip(*shares, strict=True)
    used = set(excluded_keys)
    misses = 0
    while misses < PATIENCE:
        kind = rng.choices(kinds, percent)[0]
        difficulty = rng.choice(DIFFICULTIES)
        problem = kind.draw(rng, difficulty)
        key = prompt_key(problem.prompt)
        if key in used:
            misses += 1
            continue
        misses = 0
        used.add(key)
        verify(problem)
        yield DrawnProblem(kind=kind, difficulty=difficulty, problem=problem)
    message = f"seed {seed}: no new prompt in {PATIENCE} draws, after {len(used)} prompts drawn or excluded."
    raise ValueError(message)


def verify(problem: ReasoningProblem) -> None:
    """Raise an AssertionError if the answer is not what the prompt alone gives; also where Python skips `assert`."""
    solved = solve(problem.prompt)
    if solved != problem.answer:
        message = f"{problem.prompt!r} is {solved!r} when solved, {problem.answer!r} when drawn"
        raise AssertionError(message)
