"""All kinds of problem, how often each is drawn for which dataset, and the solver that knows them all."""

from collections.abc import Mapping

from trainer.data.dev_reasoning import (
    addition,
    comparisons,
    dates,
    durations,
    edge_cases,
    multiplication,
    subtraction,
    two_step_stories,
    units,
    word_problems,
)
from trainer.data.dev_reasoning.problem import Kind

Shares = tuple[tuple[Kind, int], ...]
"""Kinds, each with its share of a set, in percent."""

SHARES: Shares = (
    (addition.KIND, 16),
    (subtraction.KIND, 16),
    (multiplication.KIND, 8),
    (word_problems.KIND, 18),
    (comparisons.KIND, 10),
    (dates.KIND, 9),
    (durations.KIND, 7),
    (units.KIND, 8),
    (edge_cases.KIND, 8),
)
"""The kinds of `dev-reasoning-v2`."""

STORIES: Shares = ((two_step_stories.KIND, 100),)
"""The kind of `dev-stories-v1`, which no row of `dev-reasoning-v2` has: a trained model is adapted to it."""

DATASET_SHARES: Mapping[str, Shares] = {"dev-reasoning-v2": SHARES, "dev-stories-v1": STORIES}


def solve(prompt: str) -> str | None:
    """Return the answer that every kind recognising the prompt agrees on. None: no kind does, or they disagree."""
    answers = {answer for kind, _ in (*SHARES, *STORIES) if (answer := kind.verify(prompt)) is not None}
    return answers.pop() if len(answers) == 1 else None
