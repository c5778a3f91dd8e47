"""The training of a run in segments, from one entry of its chain to the next, and in the parts that a judge draws.

Anyone who made the run chose how long a segment is, so segments that are short are drawn together: a part of the run is
at least a twentieth of its steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

UNCHAINED = 10
"""Segments of a run that has no chain."""

MOST_PARTS = 20
"""Into how many parts of equal length a run is divided at most, however short its segments are."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The steps between two places of a run at which its state is stated."""

    number: int
    first_step: int
    """The step after which it begins."""
    last_step: int
    """The step with which it ends."""

    @property
    def name(self) -> str:
        """How it is called: `steps 1 to 280`."""
        return f"steps {self.first_step + 1} to {self.last_step}"


@dataclass(frozen=True, kw_only=True)
class SegmentSpan:
    """Segments that follow each other, drawn together."""

    segments: tuple[Segment, ...]

    @property
    def first_step(self) -> int:
        """The step after which it begins."""
        return self.segments[0].first_step

    @property
    def last_step(self) -> int:
        """The step with which it ends."""
        return self.segments[-1].last_step

    @property
    def steps(self) -> int:
        """How many it has."""
        return self.last_step - self.first_step


def segments_of(first: int, last: int, chained: Collection[int]) -> tuple[Segment, ...]:
    """Return the segments of a run, in order.

    Args:
        first: the step from which it begins.
        last: the step with which it ends.
        chained: steps at which the chain states the train state. Empty: the chain is missing, and parts are of equal
            length.
    """
    inner = chained or range(first, last, max(1, -(-(last - first) // UNCHAINED)))
    places = sorted({first, last, *(step for step in inner if first < step < last)})
    return tuple(Segment(number=number, first_step=a, last_step=b) for number, (a, b) in enumerate(pairwise(places)))


def parts_of(segments: Sequence[Segment]) -> tuple[SegmentSpan, ...]:
    """Return the segments of a run as the parts that are drawn, none shorter than a twentieth of its steps.

    What is left at the end belongs to the last part.

    Example:
        Of a run of 2,800 steps with an entry of the chain at each, parts have 140 steps.
    """
    least = -(-(segments[-1].last_step - segments[0].first_step) // MOST_PARTS)
    found: list[list[Segment]] = [[]]
    for segment in segments:
        if found[-1] and found[-1][-1].last_step - found[-1][0].first_step >= least:
            found.append([])
        found[-1].append(segment)
    if len(found) > 1 and found[-1][-1].last_step - found[-1][0].first_step < least:
        rest = found.pop()
        found[-1] += rest
    return tuple(SegmentSpan(segments=tuple(each)) for each in found)
