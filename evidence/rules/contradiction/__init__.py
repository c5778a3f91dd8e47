"""TP3xx: two places state different things about the same fact.

One file for each fact: `identity` (which run), `settings` (declared and effective), `arithmetic` (figures that follow
from others), `results` (metrics), `order` (times and steps), `ending` (status), `scores` and `questions` (evaluation).
"""

from __future__ import annotations

from evidence.rules.contradiction import arithmetic, ending, identity, order, questions, results, scores, settings

MODULES = (identity, settings, arithmetic, results, order, ending, scores, questions)

RULES = tuple(rule for module in MODULES for rule in module.RULES)
CHECKS = tuple(check for module in MODULES for check in module.CHECKS)
