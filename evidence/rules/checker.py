"""Register rules with `@rule` and run them; a `Checker` collects the problems that a rule finds.

A rule is a function of a run and a checker. Its title, reason and fix are in `schemas/rules.toml` under its code::

    @rule("TP362", "manifest")
    def devices_match_request(run: Facts, check: Checker) -> None:
        devices = run.manifest["devices"]
        if devices["requested"] != "auto":
            check.equal(MANIFEST, "/devices/platform", devices["platform"], devices["requested"], "devices.requested")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evidence.records.facts import Facts, same
from schemas.formats import format_value
from schemas.problems import Problem, Severity, problem_of, truncate_problems


class Checker:
    """Collects the problems of one rule in one run."""

    def __init__(self, run: Facts, code: str) -> None:
        self.run, self.code = run, code
        self._found: dict[tuple[str, str], list[Problem]] = defaultdict(list)

    def report(
        self,
        file: str,
        what: str,
        pointer: str | None = None,
        *,
        expected: str | None = None,
        line: int | None = None,
        code: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Report a problem.

        Args:
            file: File of the run folder, or "" for the folder itself.
            what: What is wrong, as a sentence with the values.
            pointer: JSON Pointer to the value.
            expected: What would have been right, as a noun phrase.
            line: Row of a JSONL file, counted from 1.
            code: Code, if it is not that of the rule.
            severity: Severity, if it is not that of the code.
        """
        code = code or self.code
        path = str(self.run.folder / file)
        problem = problem_of(
            code, file=path, what=what, expected=expected, line=line, pointer=pointer, severity=severity
        )
        self._found[code, file].append(problem)

    def equal(
        self, file: str, pointer: str, stated: Any, expected: Any, source: str, *, line: int | None = None
    ) -> None:
        """Report a stated value that differs from the one that `source` gives."""
        if not same(stated, expected):
            what = f"{_name(pointer)} is {format_value(stated)}; {source} gives {format_value(expected)}."
            self.report(file, what, pointer, expected=format_value(expected), line=line)

    def require(self, condition: object, file: str, what: str, pointer: str | None = None, **more: Any) -> None:
        """Report a problem unless a condition holds; `more` is passed to `report`."""
        if not condition:
            self.report(file, what, pointer, **more)

    @property
    def problems(self) -> list[Problem]:
        """The problems found; of many with the same code and file the first five, the last of which counts the rest."""
        return [problem for found in self._found.values() for problem in truncate_problems(found)]


@dataclass(frozen=True)
class _Registered:
    code: str
    needs: tuple[str, ...]
    function: Callable[[Facts, Checker], None]


_RULES: list[_Registered] = []


def rule(code: str, *needs: str) -> Callable[[Callable[[Facts, Checker], None]], Callable[[Facts, Checker], None]]:
    """Register a rule that runs if every attribute of the run named in `needs` is there and valid."""

    def register(function: Callable[[Facts, Checker], None]) -> Callable[[Facts, Checker], None]:
        _RULES.append(_Registered(code, needs, function))
        return function

    return register


def check(run: Facts) -> list[Problem]:
    """Return what the registered rules find in a run, in the order of registration."""
    problems: list[Problem] = []
    for registered in _RULES:
        if all(getattr(run, need) is not None for need in registered.needs):
            checker = Checker(run, registered.code)
            registered.function(run, checker)
            problems += checker.problems
    return problems


def _name(pointer: str) -> str:
    return pointer.strip("/").replace("/", ".")
