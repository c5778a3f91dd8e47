"""All kinds of problem, how often each is drawn, and the solver that knows them all."""

from trainer.data.dev_reasoning import (
    addition,
    comparisons,
    dates,
    durations,
    edge_cases,
    multiplication,
    subtraction,
    units,
    word_problems,
)
from trainer.data.dev_reasoning.problem import Kind

SHARES: tuple[tuple[Kind, int], ...] = (
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
"""Each kind with its share of a set, in percent."""


def solve(prompt: str) -> str | None:
    """Return the answer that every kind recognising the prompt agrees on. None: no kind does, or they disagree."""
    answers = {answer for kind, _ in SHARES if (answer := kind.verify(prompt)) is not None}
    return answers.pop() if len(answers) == 1 else None
