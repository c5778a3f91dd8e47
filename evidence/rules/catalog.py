"""Every check of a run, listed by hand, in the order in which their findings appear."""

from __future__ import annotations

from evidence.records.facts import Facts
from evidence.rules import (
    checker,
    completeness,
    contradiction,
    hygiene,
    imported,
    integrity,
    missing_evidence,
    overlap,
    plausibility,
    possible,
    registry,
    rewarding,
)
from schemas.problems import Problem

CHECKS = (
    *integrity.CHECKS,
    *contradiction.CHECKS,
    *registry.CHECKS,
    *plausibility.CHECKS,
    *rewarding.CHECKS,
    *overlap.CHECKS,
    *possible.CHECKS,
    *completeness.CHECKS,
    *missing_evidence.CHECKS,
    *hygiene.CHECKS,
    *imported.CHECKS,
)
"""Functions from `Facts` to problems that are not registered with `@rule` yet."""


def check(facts: Facts) -> list[Problem]:
    """Return every problem that the rules find in a run."""
    return [problem for function in CHECKS for problem in function(facts)] + checker.check(facts)
