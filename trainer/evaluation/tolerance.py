"""How far the same weights and the same answer are apart on other hardware, by the element type of the products.

Measured, not chosen to pass: `benchmarks/results/fingerprints.json` has the figures,
docs/decisions/fingerprints.md states what they distinguish and what not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from evidence.scores.fingerprint import StateTolerance


@dataclass(frozen=True, kw_only=True)
class HardwareTolerance:
    """What is put down to other hardware."""

    fingerprint: StateTolerance
    margin: float
    """By how much the logit of a token that was taken may be below the largest."""


TOLERANCE: Mapping[str, HardwareTolerance] = {
    "float32": HardwareTolerance(fingerprint=StateTolerance(far_share=0.02, mean_steps=0.02), margin=0.001),
    "bfloat16": HardwareTolerance(fingerprint=StateTolerance(far_share=0.08, mean_steps=1.1), margin=0.1),
    "float16": HardwareTolerance(fingerprint=StateTolerance(far_share=0.04, mean_steps=0.25), margin=0.02),
}
"""At least twice the largest distance measured; of float32, where none was, one value of fifty. Margins are wider than
measured, since logits of larger models are: an edited token was never less than 1.7 below."""

ROUGHER: Mapping[str, str] = {"gpu": "float16", "tpu": "bfloat16"}
"""How a device multiplies float32 unless it is set otherwise: a GPU in TF32, with the mantissa of float16, a TPU in
bfloat16. Among CPUs float32 is what it states."""


def allowance(dtype: str, platforms: Collection[str]) -> HardwareTolerance:
    """Return what is put down to other hardware.

    Args:
        dtype: of the states: that of the products.
        platforms: where the answers were given and where they are checked: cpu, gpu or tpu.
    """
    names = {dtype, *(ROUGHER[each] for each in platforms if dtype == "float32" and each in ROUGHER)}
    return max((TOLERANCE[name] for name in names), key=lambda each: each.fingerprint.mean_steps)
