"""Every check of a run, listed by hand, in the order in which their findings appear."""

from __future__ import annotations

from evidence.rules import (
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
"""Functions from `Facts` to problems."""
