"""One thing that memory is needed for, and how far the sum of all of them may be off."""

from __future__ import annotations

from dataclasses import dataclass

ERROR_FRACTION = 0.08
"""Beyond this distance from the limit a verdict was right in every case of benchmarks/results/memory_estimate.json."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that memory is needed for, on each device."""

    name: str
    bytes: int
    because: str
    """The multiplication behind the figure, in words."""


def total_bytes(parts: tuple[Part, ...]) -> int:
    """Return the bytes of all parts."""
    return sum(part.bytes for part in parts)
