"""From what two sources state to a problem at the place of one of them."""

from __future__ import annotations

from evidence.records.foreign.statement import Source
from evidence.records.foreign.view import ForeignRun
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of


def found_at(view: ForeignRun, source: Source, rule: Rule, what: str, *, expected: str | None = None) -> Problem:
    """Return the problem that a rule found where a source states something."""
    file = str(view.path / source.file)
    return problem_of(rule, file=file, what=what, expected=expected, line=source.line, pointer=source.pointer)
