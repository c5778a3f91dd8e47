"""TP43x and TP44x: values that no rule of arithmetic forbids and that no run of the kind has; both sides of each bound.

What a stated device cannot do is an error (TP416, TP417, TP730). The others are warnings: they never state that a
person lies; they report what is unusual and by how much, and repeating the run shows the rest. Their bounds are chosen
from `benchmarks/honest_runs.py`, in which no real run has a finding.
"""

from __future__ import annotations

from evidence.rules.envelope import curves, device_limits, machine, times

CHECKS = (*device_limits.CHECKS, *curves.CHECKS, *machine.CHECKS, *times.CHECKS)
