"""Every rule of this package, listed by hand: what is checked is what stands here.

`RULES` is the table from which the documentation of the codes is made; `CHECKS` are the functions, in the order in
which their findings appear.
"""

from __future__ import annotations

from evidence.records.foreign.rules import RULES as FOREIGN_RULES
from evidence.rules import (
    across,
    completeness,
    contradiction,
    hygiene,
    imported,
    integrity,
    placeholders,
    plausibility,
    whole_config,
)
from evidence.run import unreadable
from schemas.problems.rule import Rule

CHECKS = (
    *integrity.CHECKS,
    *contradiction.CHECKS,
    *plausibility.CHECKS,
    *completeness.CHECKS,
    *whole_config.CHECKS,
    *hygiene.CHECKS,
    *imported.CHECKS,
)
"""Functions from `Facts` to problems."""

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *unreadable.RULES,
            *integrity.RULES,
            *contradiction.RULES,
            *plausibility.RULES,
            *across.RULES,
            *completeness.RULES,
            *whole_config.RULES,
            *placeholders.RULES,
            *hygiene.RULES,
            *FOREIGN_RULES,
        ),
        key=lambda rule: rule.code,
    )
)
"""What each code of TP2xx to TP6xx means, in the order of codes."""
