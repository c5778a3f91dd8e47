"""TP43x to TP45x: values that no rule of arithmetic forbids and that no run of the kind has; both sides of each bound.

These findings are warnings. They never say that somebody lies; they say what is unusual and by how much, and repeating
the run tells the rest. The bounds are chosen from `benchmarks/honest_runs.py`, in which no real run has a finding.
"""

from __future__ import annotations

from evidence.rules.envelope import curves, machine, software, times

CHECKS = (*curves.CHECKS, *machine.CHECKS, *software.CHECKS, *times.CHECKS)
