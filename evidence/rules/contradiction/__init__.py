"""TP3xx: two places state different things about the same fact.

One file for each topic.
"""

from __future__ import annotations

from evidence.rules.contradiction import (
    chain,
    order,
    questions,
    results,
    rollouts,
    scores,
)

MODULES = (
    results,
    order,
    chain,
    scores,
    questions,
    rollouts,
)

CHECKS = tuple(check for module in MODULES for check in module.CHECKS)
