"""Every check of a run, listed by hand, in the order in which their findings appear."""

from __future__ import annotations

from evidence.rules import (
    completeness,
    contradiction,
    envelope,
    hygiene,
    imported,
    integrity,
    missing_evidence,
    overlap,
    plausibility,
    registry,
    rewarding,
    spelling,
)

CHECKS = (
    *integrity.CHECKS,
    *contradiction.CHECKS,
    *registry.CHECKS,
    *spelling.CHECKS,
    *plausibility.CHECKS,
    *rewarding.CHECKS,
    *overlap.CHECKS,
    *envelope.CHECKS,
    *completeness.CHECKS,
    *missing_evidence.CHECKS,
    *hygiene.CHECKS,
    *imported.CHECKS,
)
"""Functions from `Facts` to problems."""
