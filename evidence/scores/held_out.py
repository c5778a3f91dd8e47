"""Which items of a set are asked during training: drawn from the run's seed, so that anyone draws the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def drawn_ids(ids: Sequence[str], count: int, seed: int) -> list[str]:
    """Return `count` ids of a set, all where it has no more, in the order of the set.

    They are those whose SHA-256, taken with the seed before them, is smallest.
    """
    least = sorted(ids, key=lambda each: hashlib.sha256(f"{seed} {each}".encode()).digest())[:count]
    chosen = set(least)
    return [each for each in ids if each in chosen]
