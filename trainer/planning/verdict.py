"""Whether a need is within what there is, given how far the need may be off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Verdict = Literal["fits", "tight", "does_not_fit", "unsupported", "unknown"]
Way = Literal["closed_form", "compiler", "extrapolated"]

WORST_FIRST: tuple[Verdict, ...] = ("unsupported", "does_not_fit", "tight", "unknown", "fits")


def verdict(need_bytes: int, available_bytes: int | None, error_fraction: float, way: Way = "closed_form") -> Verdict:
    """Return whether the need, within its error, is within what there is.

    fits: all of the band `need · (1 ± error)` is below; does_not_fit: all of it is above; tight: the limit lies inside
    it. A compiler that has seen the whole program refuses what is above the limit, so there the band ends at the need.

    >>> [verdict(need, 100, 0.08) for need in (92, 95, 108, 109)]
    ['fits', 'tight', 'tight', 'does_not_fit']
    >>> [verdict(need, 100, 0.08, "compiler") for need in (92, 95, 101)]
    ['fits', 'tight', 'does_not_fit']
    """
    if available_bytes is None:
        return "unknown"
    if need_bytes * (1 + error_fraction) <= available_bytes:
        return "fits"
    least = need_bytes if way == "compiler" else need_bytes * (1 - error_fraction)
    return "tight" if least <= available_bytes else "does_not_fit"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of the programs' verdicts: that of the run."""
    return min(verdicts, key=WORST_FIRST.index)
