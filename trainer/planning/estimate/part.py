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
    least_bytes: int | None = None
    """What remains of it where a compiler is short of memory and computes again what it would keep. None: all."""


def total_bytes(parts: tuple[Part, ...]) -> int:
    """Return the bytes of all parts."""
    return sum(part.bytes for part in parts)


def error_of(parts: tuple[Part, ...], available_bytes: int | None) -> float:
    """Return how far the sum may be off, as a fraction of it.

    With memory to spare that is `ERROR_FRACTION`. Where the sum is more than there is, a compiler computes again what
    it would keep (`Part.least_bytes`): the band then begins below that least sum.
    """
    need = total_bytes(parts)
    if available_bytes is None or need * (1 + ERROR_FRACTION) <= available_bytes or not need:
        return ERROR_FRACTION
    least = sum(part.bytes if part.least_bytes is None else part.least_bytes for part in parts)
    return round(max(ERROR_FRACTION, 1 - (1 - ERROR_FRACTION) * least / need), 4)
