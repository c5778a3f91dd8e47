"""From a rule to a problem, and the small words that all rules share.

A rule states its meaning and its fix once, in its `Rule`; a problem adds what was found, with names and numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of

TOLERANCE = 1e-9
"""Largest difference, relative for numbers above 1, between a stated number and the same number computed again."""


def finding(folder: Path, rule: Rule, name: str, what: str, **more: Any) -> Problem:
    """Return the problem that a rule found in one file of a run folder, or in the folder itself where name is empty."""
    return problem_of(rule, file=str(folder / name), what=what, **more)


def value_at(document: Any, pointer: str) -> Any:
    """Return the value at a pointer like `/training/steps_done` of a valid document.

    Raises:
        KeyError: The key is left out, or a group above it is null.
    """
    for part in pointer.split("/")[1:]:
        if document is None:
            raise KeyError(pointer)
        document = document[part]
    return document


def same(one: Any, other: Any) -> bool:
    """Return whether two values state the same: counts and the like exactly, other numbers within `TOLERANCE`."""
    if type(one) is int and type(other) is int:
        return one == other
    if _is_number(one) and _is_number(other):
        return bool(abs(one - other) <= TOLERANCE * max(1.0, abs(one), abs(other)))
    return type(one) is type(other) and bool(one == other)


def where(flags: NDArray[np.bool_]) -> list[int]:
    """Return the indices of the rows for which something holds, `[rows]` flags, in order."""
    return np.flatnonzero(flags).tolist() if flags.any() else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
