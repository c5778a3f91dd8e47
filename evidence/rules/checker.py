"""Register rules with `@rule` and run them; a `Checker` collects their problems.

A rule is a function of a run and a checker. Its title, reason and fix are in `schemas/rules.toml` under its code.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast

from evidence.run import ROW_FILES, Document, Run, same
from schemas.formats import format_value
from schemas.problems import Problem, problem_of, truncate_problems

_HASH = re.compile("[0-9a-f]{40,64}")


class ValidRun(Run):
    """Type of the run that a rule gets: the documents and rows that the rule needs are not None.

    A document that a rule does not need can still be missing; test it with `if run.plan:`.
    """

    manifest: Document
    config: Document
    plan: Document
    first_examples: Document
    eval_summary: Document
    model: Document
    training: Document
    metrics: Sequence[Document]
    log: Sequence[Document]
    chain: Sequence[Document]
    rollouts: Sequence[Document]
    answers_over_steps: Sequence[Document]
    predictions: Sequence[Document]
    baseline_predictions: Sequence[Document]


class Checker:
    """Collects the problems of one rule in one run."""

    def __init__(self, run: Run, code: str) -> None:
        self.run, self.code = run, code
        self._found: dict[tuple[str, str], list[Problem]] = defaultdict(list)

    def report(self, file: str, what: str, pointer: str | None = None, **details: Any) -> None:
        """Report a problem of a file in the run folder, or of the folder itself if the name is "".

        `details` are `expected`, `line` (the row of a JSONL file from 1), `severity`, `code` (by default the
        rule's), and `group`: many problems of one code are counted by group, by default the file.
        """
        code, group = details.pop("code", None) or self.code, details.pop("group", None)
        if file in ROW_FILES and details.get("line") is not None:
            details["line"] = self.run.rows(file).line_of(details["line"] - 1)
        problem = problem_of(code, file=str(self.run.folder / file), what=what, pointer=pointer, **details)
        self._found[code, file if group is None else group].append(problem)

    def equal(self, file: str, pointer: str, stated: Any, expected: Any, source: str, **more: Any) -> None:
        """Report a stated value that differs from the one that `source` gives; `more` is passed to `report`."""
        if not same(stated, expected):
            what = f"{pointer.strip('/').replace('/', '.')} is {shorten(stated)}; {source} gives {shorten(expected)}."
            text = format_value(expected)
            more.setdefault("expected", text if shorten(expected) == text else expected)
            self.report(file, what, pointer, **more)

    def require(self, condition: object, file: str, what: str, pointer: str | None = None, **more: Any) -> None:
        """Report a problem unless a condition holds; `more` is passed to `report`."""
        if not condition:
            self.report(file, what, pointer, **more)

    @property
    def problems(self) -> list[Problem]:
        """The problems found; of many with the same code and file the first five, the last of which counts the rest."""
        return [problem for found in self._found.values() for problem in truncate_problems(found)]


RuleFunction = Callable[[ValidRun, Checker], None]
_RULES: list[tuple[str, tuple[str, ...], RuleFunction]] = []  # code, needs and function of every rule


def rule(code: str, *needs: str) -> Callable[[RuleFunction], RuleFunction]:
    """Register a rule that runs if every attribute of the run named in `needs` is there and valid."""

    def register(function: RuleFunction) -> RuleFunction:
        _RULES.append((code, needs, function))
        return function

    return register


def check(run: Run) -> list[Problem]:
    """Return the problems that the rules in `evidence/rules` find in a run, in the order of their codes."""
    problems: list[Problem] = []
    for code, needs, function in _load_rules():
        if all(getattr(run, need) is not None for need in needs):
            checker = Checker(run, code)
            function(cast(ValidRun, run), checker)
            problems += checker.problems
    return sorted(problems, key=lambda problem: problem.code)


@cache
def _load_rules() -> list[tuple[str, tuple[str, ...], RuleFunction]]:
    """Return the rules of all modules in this folder, which register them when they are imported."""
    for module in iter_modules([str(Path(__file__).parent)], "evidence.rules."):
        import_module(module.name)
    return _RULES


def shorten(value: Any) -> str:
    """Format a value for a message; of a hash the first twelve digits."""
    return f"{value[:12]}…" if isinstance(value, str) and _HASH.fullmatch(value) else format_value(value)
