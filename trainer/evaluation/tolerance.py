"""How far the same weights and the same answer are apart on other hardware, by the element type of the products.

Measured by `benchmarks/fingerprints.py`, not chosen to pass: `benchmarks/results/fingerprints.json` has the figures,
docs/decisions/fingerprints.md says what they tell apart and what not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evidence.scores.fingerprint import Tolerance


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What is put down to other hardware."""

    fingerprint: Tolerance
    margin: float
    """By how much the logit of a token that was taken may be below the largest."""


TOLERANCE: Mapping[str, Allowed] = {
    "float32": Allowed(fingerprint=Tolerance(far_share=0.05, mean_steps=0.1), margin=0.001),
    "bfloat16": Allowed(fingerprint=Tolerance(far_share=0.2, mean_steps=4.0), margin=0.25),
    "float16": Allowed(fingerprint=Tolerance(far_share=0.1, mean_steps=1.0), margin=0.05),
}
