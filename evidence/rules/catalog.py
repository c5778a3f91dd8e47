"""Every check of a run, listed by hand, in the order in which their findings appear."""

from __future__ import annotations

from evidence.rules import (
    completeness,
    contradiction,
    device_limits,
    hygiene,
    imported,
    integrity,
    plausibility,
    registry,
    whole_config,
)

CHECKS = (
    *integrity.CHECKS,
    *contradiction.CHECKS,
    *registry.CHECKS,
    *plausibility.CHECKS,
    *device_limits.CHECKS,
    *completeness.CHECKS,
    *whole_config.CHECKS,
    *hygiene.CHECKS,
    *imported.CHECKS,
)
"""Functions from `Facts` to problems."""
