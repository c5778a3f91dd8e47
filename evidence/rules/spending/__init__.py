"""TP73x and TP74x: what a run will spend badly, beyond memory: its hours, its tokens, its device's parts.

The plan calls `findings` with what it has computed; a figure that is not known keeps its checks silent.
"""

from __future__ import annotations

from evidence.rules.spending import device, hours, program
from evidence.rules.spending.figures import RunFigures
from evidence.targets.target import Target
from schemas.problems import Problem, worst_first

CHECKS = (*device.CHECKS, *program.CHECKS, *hours.CHECKS)
"""Functions from what is known of a run, and its device, to problems, in the order of their findings."""


def findings(figures: RunFigures, target: Target) -> tuple[Problem, ...]:
    """Return what a run would spend badly on a device, worst first; a figure that is not known is not judged."""
    return worst_first(problem for check in CHECKS for problem in check(figures, target))
