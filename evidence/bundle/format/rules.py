"""The rules of family TP8xx: the bundle, from folder to zip and back. The checks are in the files that use them."""

from __future__ import annotations

from schemas.formats import visible
from schemas.problems import Problem, problem_of


def refusal(
    code: str, file: str, what: str, *, expected: str | None = None, line: int | None = None, next: str | None = None
) -> Problem:
    """Return the problem of a rule about a file whose name may be hostile.

    `next` may state more than the rule's fix.
    """
    return problem_of(code, file=visible(file), what=what, expected=expected, line=line, next=next)
