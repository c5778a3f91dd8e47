"""How far the same weights and the same answer are apart on other hardware, by the element type of the products.

Measured, not chosen to pass: `benchmarks/results/fingerprints.json` has the figures,
docs/decisions/fingerprints.md states what they distinguish and what not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

MARGINS: Mapping[str, float] = {"float32": 0.001, "bfloat16": 0.1, "float16": 0.02}
"""Largest gap between the logit of a chosen token and the largest logit. At least twice what was measured with the
same weights on other hardware; an edited token was never less than 1.7 below."""

ROUGHER: Mapping[str, str] = {"gpu": "float16", "tpu": "bfloat16"}
"""How a device multiplies float32 by default: a GPU in TF32, with the mantissa of float16, a TPU in bfloat16."""


def allowed_margin(dtype: str, platforms: Collection[str]) -> float:
    """Return the largest margin that is attributed to other hardware.

    Args:
        dtype: Element type of the products.
        platforms: Where the answers were given and where they are checked: cpu, gpu or tpu.
    """
    names = {dtype, *(ROUGHER[each] for each in platforms if dtype == "float32" and each in ROUGHER)}
    return max(MARGINS[name] for name in names)
