"""A compiled peak divided into the parts that the closed form sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainer.planning.estimate.part import Part, total_bytes

KEPT_WHOLE = ("params", "frozen", "opt_state", "batch", "adapters")
"""Parts that are exact: arrays of known shape that are there from begin to end."""


def divided(peak: int, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts that add up to a compiled peak: arrays of known shape as they are, the rest in proportion.

    A peak of 100 with params of 60 and temporaries summed as 30 and 20 has 60, 24 and 16.
    """
    exact = [part for part in parts if part.name in KEPT_WHOLE]
    loose = [part for part in parts if part.name not in KEPT_WHOLE and part.bytes]
    left = peak - total_bytes(tuple(exact))
    if left < 0 or not loose:
        rest = Part(name="temporaries", bytes=max(left, 0), because="what the compiler keeps besides")
        whole = tuple(_fitted(peak, exact)) if left < 0 else (*exact, rest)
        return tuple(part for part in whole if part.bytes)
    summed = total_bytes(tuple(loose))
    shared = [replace(part, bytes=part.bytes * left // summed) for part in loose]
    lost = left - sum(part.bytes for part in shared)
    shared[0] = replace(shared[0], bytes=shared[0].bytes + lost)
    return tuple(part for part in (*exact, *shared) if part.bytes)


def _fitted(peak: int, parts: list[Part]) -> Iterator[Part]:
    """Yield parts cut so that they add up to a peak below their sum."""
    left = peak
    for part in parts:
        taken = min(part.bytes, left)
        left -= taken
        yield replace(part, bytes=taken)
