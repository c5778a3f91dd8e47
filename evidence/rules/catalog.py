"""Run all rules on a run."""

from __future__ import annotations

from evidence.rules import (
    chain,
    checker,
    files,
    held_out,
    identity,
    imported,
    plausibility,
    registry,
    results,
    rollouts,
    scores,
    settings,
)
from evidence.run import Run
from schemas.problems import Problem

RULE_MODULES = (
    chain,
    files,
    held_out,
    identity,
    plausibility,
    registry,
    results,
    rollouts,
    scores,
    settings,
)
"""Modules whose rules are registered when they are imported."""


def check(facts: Run) -> list[Problem]:
    """Return the problems that the rules find in a run, in the order of their codes."""
    found = [problem for function in imported.CHECKS for problem in function(facts)] + checker.check(facts)
    return sorted(found, key=lambda problem: problem.code)
