"""A rule: one code with what it means and how to fix it, declared once beside the check that uses it.

`problem_of` makes a problem of a rule; the finding adds names and numbers. `declared` returns every rule of the modules
that are loaded, for reports and for docs/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from types import EllipsisType

from schemas.problems.problem import Problem, Severity

MOST_OF_ONE_KIND = 5
"""Findings of one rule about one file before the rest is only counted."""

_DECLARED: dict[str, Rule] = {}


@dataclass(frozen=True)
class Rule:
    """One code.

    Attributes:
        code: `TP` and three digits; `Problem` explains the first digit.
        title: a few words, as a heading.
        meaning: what is wrong, or why it matters, as a sentence.
        fix: what to do, as a sentence.
        severity: what its problems usually are.
    """

    code: str
    title: str
    meaning: str
    fix: str
    severity: Severity = "error"

    def __post_init__(self) -> None:
        _DECLARED[self.code] = self


def declared_rules() -> tuple[Rule, ...]:
    """Return the rules of all modules that are loaded, by code."""
    return tuple(_DECLARED[code] for code in sorted(_DECLARED))


def problem_of(
    rule: Rule,
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
    """Return the problem that a check found.

    Args:
        rule: what it breaks.
        file: the file or folder as the user named it.
        what: what happened, as a sentence with names and numbers.
        why: the reason; the rule's meaning unless given, nothing where it is None.
        expected: what would have been right, as a noun phrase.
        next: what to do; the rule's fix unless given.
        line: the line in the file.
        pointer: the JSON Pointer to the value.
        severity: the rule's unless given.
    """
    return Problem(
        code=rule.code,
        severity=severity or rule.severity,
        file=file,
        what=what,
        why=rule.meaning if why is ... else why,
        expected=expected,
        next=next or rule.fix,
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
