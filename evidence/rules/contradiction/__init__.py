"""TP3xx: two places state different things about the same fact.

One file for each fact: `identity` (which run), `settings` (declared and effective), `restated` (what is only
repeated), `devices` (what ran where), `arithmetic` (figures that follow from others), `examples` (training data),
`results` (metrics), `order` (times and steps), `chain` (what the run was at one step after another, and what it
ended with), `ending` (status), `log` (events), `scores` and `questions` (evaluation), `rollouts` (learning
from rewards), `held_out` (what is measured in training).
"""

from __future__ import annotations

from evidence.rules.contradiction import (
    arithmetic,
    chain,
    devices,
    ending,
    examples,
    held_out,
    identity,
    log,
    order,
    questions,
    restated,
    results,
    rollouts,
    scores,
    settings,
)

MODULES = (
    identity,
    settings,
    restated,
    devices,
    arithmetic,
    examples,
    results,
    order,
    chain,
    ending,
    log,
    scores,
    questions,
    rollouts,
    held_out,
)

CHECKS = tuple(check for module in MODULES for check in module.CHECKS)
