"""Run all rules on a run."""

from __future__ import annotations

from evidence.records.facts import Facts
from evidence.rules import (
    chain,
    checker,
    completeness,
    contradiction,
    hygiene,
    imported,
    integrity,
    missing_evidence,
    plausibility,
    registry,
    results,
    rollouts,
    scores,
)
from schemas.problems.problem import Problem

RULE_MODULES = (
    chain,
    plausibility,
    registry,
    results,
    rollouts,
    scores,
)
"""Modules whose rules are registered when they are imported."""

CHECKS = (
    *integrity.CHECKS,
    *contradiction.CHECKS,
    *completeness.CHECKS,
    *missing_evidence.CHECKS,
    *hygiene.CHECKS,
    *imported.CHECKS,
)
"""Functions from `Facts` to problems that are not registered with `@rule` yet."""


def check(facts: Facts) -> list[Problem]:
    """Return the problems that the rules find in a run, in the order of their codes."""
    found = [problem for function in CHECKS for problem in function(facts)] + checker.check(facts)
    return sorted(found, key=lambda problem: problem.code)
