"""One thing that memory is needed for, and how far the sum of all of them may be off."""

from __future__ import annotations

from dataclasses import dataclass

ERROR_FRACTION = 0.08
"""Beyond this distance from the limit a verdict was right in every case of benchmarks/results/memory_estimate.json."""

SHARDED_ERROR_FRACTION = 0.15
"""The same where a state is split over devices: their compiler lets gathers run ahead of each other over as many layers
as there are, and six whole steps of Gemma 2B on eight chips needed 7 to 14 % more than their sums."""


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

    With memory to spare that is `ERROR_FRACTION`, or that of several devices. Where the sum is more than there is, a
    compiler computes again what it would keep (`Part.least_bytes`): the band then begins below that least sum.
    """
    need = total_bytes(parts)
    error = SHARDED_ERROR_FRACTION if is_sharded(parts) else ERROR_FRACTION
    if available_bytes is None or need * (1 + error) <= available_bytes or not need:
        return error
    least = sum(part.bytes if part.least_bytes is None else part.least_bytes for part in parts)
    return round(max(error, 1 - (1 - error) * least / need), 4)


def is_sharded(parts: tuple[Part, ...]) -> bool:
    """Return whether weights are gathered from other devices, or unpacked from codes, while the program runs."""
    return any(part.name == "gathered_weights" and part.bytes for part in parts)
