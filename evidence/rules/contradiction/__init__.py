"""TP3xx: two places state different things about the same fact; one file for each topic."""

from __future__ import annotations

from evidence.rules.contradiction import (
    arithmetic,
    devices,
    ending,
    examples,
    held_out,
    identity,
    log,
    restated,
    settings,
)

MODULES = (
    identity,
    settings,
    restated,
    devices,
    arithmetic,
    examples,
    ending,
    log,
    held_out,
)

CHECKS = tuple(check for module in MODULES for check in module.CHECKS)
