"""Run all rules on a run."""

from __future__ import annotations

from evidence.records.facts import Facts
from evidence.rules import (
    checker,
    contradiction,
    files,
    held_out,
    identity,
    imported,
    overlap,
    plausibility,
    possible,
    registry,
    rewarding,
    settings,
)
from schemas.problems.problem import Problem

RULE_MODULES = (
    files,
    held_out,
    identity,
    settings,
)
"""Modules whose rules are registered when they are imported."""

CHECKS = (
    *contradiction.CHECKS,
    *registry.CHECKS,
    *plausibility.CHECKS,
    *rewarding.CHECKS,
    *overlap.CHECKS,
    *possible.CHECKS,
    *imported.CHECKS,
)
"""Functions from `Facts` to problems that are not registered with `@rule` yet."""


def check(facts: Facts) -> list[Problem]:
    """Return the problems that the rules find in a run, in the order of their codes."""
    found = [problem for function in CHECKS for problem in function(facts)] + checker.check(facts)
    return sorted(found, key=lambda problem: problem.code)
