"""The rules of family TP8xx about keys, signatures, time stamps and attestations. The checks are in the files here."""

from __future__ import annotations

from schemas.formats import visible
from schemas.problems import Problem, problem_of


def refusal(code: str, file: str, what: str, *, expected: str | None = None, next: str | None = None) -> Problem:
    """Return the problem of a rule about a file whose name may be hostile.

    `next` may state more than the rule's fix.
    """
    return problem_of(code, file=visible(file), what=what, expected=expected, next=next)
