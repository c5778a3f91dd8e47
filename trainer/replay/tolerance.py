"""How far a repetition may be from a run on another machine of the same kind: what was measured there.

A processor with other instructions, or another number of threads, adds in another order. The first step then differs
in the last bits of its loss, and training carries that on, so that more is allowed the more steps lie behind the common
state. The table `tolerances.json` is made by `benchmarks/replay_tolerance.py`: for each element type of the products,
the largest difference relative to the larger value that was seen up to some number of steps, and a stated factor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FLOOR = 1e-6
"""Values below it count as this large, so that two that are nearly 0 are not far apart."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What is allowed where products have one element type."""

    factor: float
    """How many times what was measured is allowed."""
    least: float
    """What is allowed at least: a few units in the last place of float32, in which losses and norms are added up."""
    measured: Mapping[str, tuple[tuple[int, float], ...]]
    """By field: up to how many steps, and the largest relative difference seen up to there, ascending."""

    @property
    def floor(self) -> float:
        """Values below it count as this large."""
        return FLOOR

    @property
    def most_steps(self) -> int:
        """Steps up to which anything was measured."""
        return max(steps for pairs in self.measured.values() for steps, _ in pairs)

    def allowed(self, field: str, *, steps: int) -> float:
        """Return the largest relative difference that is allowed some steps after a common state.

        Beyond what was measured nothing more is allowed than at its end. A field without a table is held to the
        loss's.
        """
        pairs = self.measured.get(field, self.measured["loss"])
        seen = next((worst for most, worst in pairs if steps <= most), pairs[-1][1])
        return max(self.factor * seen, self.least)


@cache
def tolerance_of(compute: str) -> Tolerance:
    """Return what is allowed where products are computed in an element type: float32, bfloat16 or float16."""
    table: dict[str, Any] = json.loads((files("trainer") / "replay" / "tolerances.json").read_text(encoding="utf-8"))
    measured = {
        field: tuple((int(steps), float(worst)) for steps, worst in pairs)
        for field, pairs in table["measured"][compute].items()
    }
    return Tolerance(factor=table["factor"], least=table["least"], measured=measured)
