"""The training of a run in segments, and which of them are repeated, in which order."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

UNCHAINED = 10
"""Segments of a run that has no chain."""


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


def segments_of(first: int, last: int, chained: Collection[int]) -> tuple[Segment, ...]:
    """Return the segments of a run, in order.

    Args:
        first: the step from which it begins.
        last: the step with which it ends.
        chained: steps at which the chain states the train state. Empty: there is none, and parts are of equal length.
    """
    inner = chained or range(first, last, max(1, -(-(last - first) // UNCHAINED)))
    places = sorted({first, last, *(step for step in inner if first < step < last)})
    return tuple(Segment(number=number, first_step=a, last_step=b) for number, (a, b) in enumerate(pairwise(places)))


def drawn_segments(segments: tuple[Segment, ...], starts: Collection[int], *, count: int, seed: int) -> list[Segment]:
    """Return the segments to repeat: the first one, and others drawn by a seed, in the order of the run.

    Only what begins where there is a state can be drawn: a kept checkpoint. Where there are fewer, the first segments
    of the run are repeated, as many as were asked for.

    Args:
        segments: of the run.
        starts: steps at which there is a state to begin from, the first step of the run among them.
        count: segments besides the first.
        seed: decides which.
    """
    others = [segment for segment in segments[1:] if segment.first_step in starts]
    chosen = {0, *(segment.number for segment in sorted(others, key=lambda each: lot(seed, each.name))[:count])}
    for segment in segments[1:]:
        if len(chosen) > count:
            break
        chosen.add(segment.number)
    return [segments[number] for number in sorted(chosen) if number < len(segments)]


def drawn_items(ids: Collection[str], *, count: int, seed: int) -> set[str]:
    """Return the ids of the items to answer again, all where there are not more."""
    return set(sorted(ids, key=lambda each: lot(seed, each))[:count])


def lot(seed: int, name: str) -> str:
    """Return what a name draws: the hash of seed and name, which anybody can compute. The smallest are taken."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
