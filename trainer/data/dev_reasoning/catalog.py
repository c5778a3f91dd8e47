"""All kinds of problem, how often each is drawn for which dataset, and the solver that knows them all."""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainer.data.dev_reasoning.arithmetic import ADDITION, COMPARISON, EDGE_CASE, MULTIPLICATION, SUBTRACTION
from trainer.data.dev_reasoning.measures import CONVERSION, DATE, DURATION
from trainer.data.dev_reasoning.problem import DIFFICULTIES, Difficulty, Kind, ReasoningProblem
from trainer.data.dev_reasoning.stories import STORY, TWO_STEP_STORY

Shares = tuple[tuple[Kind, int], ...]
"""Kinds, each with its share of a set, in percent."""

SHARES: Shares = (
    (ADDITION, 16),
    (SUBTRACTION, 16),
    (MULTIPLICATION, 8),
    (STORY, 18),
    (COMPARISON, 10),
    (DATE, 9),
    (DURATION, 7),
    (CONVERSION, 8),
    (EDGE_CASE, 8),
)
"""The kinds of `dev-reasoning-v2`."""

STORIES: Shares = ((TWO_STEP_STORY, 100),)
"""The kind of `dev-stories-v1`, which no row of `dev-reasoning-v2` has: a trained model is adapted to it."""

DATASET_SHARES: Mapping[str, Shares] = {"dev-reasoning-v2": SHARES, "dev-stories-v1": STORIES}


def solve(prompt: str) -> str | None:
    """Return the answer that every kind recognising the prompt agrees on. None: no kind does, or they disagree."""
    answers = {answer for kind, _ in (*SHARES, *STORIES) if (answer := kind.verify(prompt)) is not None}
    return answers.pop() if len(answers) == 1 else None


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
