"""A judge's request for a repetition."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

LARGEST_NUMBER = 10**6
"""Below which a number lies that is drawn where the judge gives none: six digits, easily written down."""


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """A request."""

    folder: Path
    whole: bool = False
    """Every segment from the seed, and every answer."""
    segments: int = 4
    """Parts drawn between the first and the last."""
    items: int = 10
    """Answers that are written anew, of each model; the others are followed in one pass."""
    minutes: float | None = None
    """Time to spend: as many segments as it allows. None: those requested, however long they take."""
    seed: int | None = None
    """The judge's number, which decides what is drawn. None: one is drawn now."""
    states: Path | None = None
    """Folder with the states that the run's maker sent for this number. None: none were requested."""
    anyway: bool = False
    """Repeat it although versions differ."""
    dataset: str | None = None
    """Where the run's dataset lies here."""
    model: str | None = None
    """Where its model lies here."""

    def numbered(self) -> ReplayRequest:
        """Return it with a number of the judge: the one given, or one that no one could know before."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(LARGEST_NUMBER))

    def document(self) -> dict[str, Any]:
        """Return the receipt's group `asked`."""
        return {
            "whole": self.whole,
            "segments": self.segments,
            "items": self.items,
            "minutes": self.minutes,
            "seed": self.seed,
        }
