"""From a rule to a problem, and the small words that all rules share.

A rule states its meaning and its fix once, in its `Rule`; a problem adds what was found, with names and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule

TOLERANCE = 1e-9
"""Largest difference, relative for numbers above 1, between a stated number and the same number computed again."""

MOST_OF_ONE_KIND = 5
"""Findings of one rule about one file before the rest is only counted."""


def problem_of(
    rule: Rule,
    *,
    file: str,
    what: str,
    expected: str | None = None,
    next: str | None = None,
    line: int | None = None,
    pointer: str | None = None,
) -> Problem:
    """Return the problem that a rule found; why and what to do come from the rule unless `next` says more."""
    return Problem(
        code=rule.code,
        severity=rule.severity,
        file=file,
        what=what,
        why=rule.meaning,
        expected=expected,
        next=next or rule.fix,
        line=line,
        pointer=pointer,
    )


def found(folder: Path, rule: Rule, name: str, what: str, **more: Any) -> Problem:
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


def first_few(problems: Iterable[Problem], limit: int = MOST_OF_ONE_KIND) -> Iterator[Problem]:
    """Yield the first problems; where there are more, the last one yielded says how many."""
    problems = iter(problems)
    shown_ones = list(islice(problems, limit))
    hidden = sum(1 for _ in problems)
    yield from shown_ones[:-1] if hidden else shown_ones
    if hidden:
        last = shown_ones[-1]
        yield replace(last, what=f"{last.what} There are {hidden} more like it.")


def where(flags: NDArray[np.bool_]) -> list[int]:
    """Return the indices of the rows for which something holds, `[rows]` flags, in order."""
    return np.flatnonzero(flags).tolist() if flags.any() else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
