"""How one text differs from another, letter by letter: what both have, and what only one of them has."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

Kind = Literal["same", "missing", "added"]
LONGEST = 2000
"""Letters compared; beyond, comparing takes longer than a reader waits."""


def difference(expected: str, got: str) -> Iterator[tuple[Kind, str]]:
    """Yield the pieces of two texts in reading order.

    For `118 km` and `181 km`: `("missing", "1")`, `("same", "18")`, `("added", "1")`, `("same", " km")`. Texts of more
    than `LONGEST` letters are one piece each, unless they are equal.
    """
    if expected == got:
        yield "same", expected
        return
    if max(len(expected), len(got)) > LONGEST:
        yield "missing", expected
        yield "added", got
        return
    for tag, start, end, other_start, other_end in SequenceMatcher(a=expected, b=got, autojunk=False).get_opcodes():
        if tag == "equal":
            yield "same", expected[start:end]
            continue
        if end > start:
            yield "missing", expected[start:end]
        if other_end > other_start:
            yield "added", got[other_start:other_end]
