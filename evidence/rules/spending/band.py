"""A duration that is not known exactly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Band:
    """A duration that is not known exactly, in seconds: `low <= likely <= high`."""

    low: float
    likely: float
    high: float

    def times(self, count: float) -> Band:
        """Return `count` such durations one after the other.

        >>> Band(low=1, likely=2, high=4).times(3)
        Band(low=3, likely=6, high=12)
        """
        return Band(low=self.low * count, likely=self.likely * count, high=self.high * count)

    def plus(self, other: Band) -> Band:
        """Return this duration followed by another.

        >>> Band(low=1, likely=2, high=4).plus(exactly(1))
        Band(low=2, likely=3, high=5)
        """
        return Band(low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high)


def exactly(seconds: float) -> Band:
    """Return a duration that is known."""
    return Band(low=seconds, likely=seconds, high=seconds)
