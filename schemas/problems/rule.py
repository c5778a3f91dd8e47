"""Look up the title, reason and fix of a problem code in `schemas/rules.toml`, and build problems from them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from types import EllipsisType

from schemas.problems.problem import Problem, Severity

MOST_OF_ONE_KIND = 5
"""Problems of one code and file that are shown; the others are counted."""


@dataclass(frozen=True)
class Rule:
    """Texts of one code.

    Attributes:
        code: `TP` and three digits; `Problem` explains the first digit.
        title: Short heading.
        why: What is wrong or why it matters, as a sentence.
        fix: What to do, as a sentence.
        severity: Default severity of its problems.
    """

    code: str
    title: str
    why: str
    fix: str
    severity: Severity = "error"


@cache
def all_rules() -> dict[str, Rule]:
    """Load every rule by its code."""
    text = files("schemas").joinpath("rules.toml").read_text(encoding="utf-8")
    return {code: Rule(code, **texts) for code, texts in tomllib.loads(text).items()}


def rule(code: str) -> Rule:
    """Return the texts of a code."""
    return all_rules()[code]


def problem_of(
    code: str,
    *,
    file: str,
    what: str,
    why: str | EllipsisType | None = ...,
    expected: str | None = None,
    next: str | None = None,
    line: int | None = None,
    pointer: str | None = None,
    severity: Severity | None = None,
) -> Problem:
    """Build a problem with the texts of its code.

    Args:
        code: Code in `rules.toml`.
        file: File or folder as the user named it.
        what: What happened, as a sentence with names and numbers.
        why: Reason; by default that of the rule. None leaves it out.
        expected: What would have been right, as a noun phrase.
        next: What to do; by default the fix of the rule.
        line: Line of the file, counted from 1.
        pointer: JSON Pointer to the value.
        severity: Severity, if it differs from that of the rule.
    """
    texts = rule(code)
    return Problem(
        code=code,
        severity=severity or texts.severity,
        file=file,
        what=what,
        why=texts.why if why is ... else why,
        expected=expected,
        next=next or texts.fix,
        line=line,
        pointer=pointer,
    )


def first_few(problems: Iterable[Problem], limit: int = MOST_OF_ONE_KIND) -> Iterator[Problem]:
    """Yield the first problems; where there are more, the last one yielded states how many."""
    problems = iter(problems)
    first = list(islice(problems, limit))
    hidden = sum(1 for _ in problems)
    yield from first[:-1] if hidden else first
    if hidden:
        last = first[-1]
        yield replace(last, what=f"{last.what} There are {hidden} more like it.")
