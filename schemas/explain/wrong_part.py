"""The beginning of a large value that is wrong: as much of it as holds the first wrong values, and little more.

The validator makes a copy of what is wrong for every rule that is broken, so that a few megabytes with a million wrong
items would take minutes and all of a machine's memory to be explained.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Set
from typing import Any

MOST_VALUES = 20_000
"""Values up to which a document is explained in full."""

LONGEST_TEXT = 1_000
"""Characters of a text that are looked at in a larger value; so many count as ten values."""

FEWEST = 100
"""Items of each list, and unknown keys of each object, that are looked at in a larger one."""


def first_wrong(value: Any, known: Set[str], is_valid: Callable[[Any], bool]) -> Any:
    """Return the value itself if it is small, else its shortest beginning that is wrong.

    Args:
        value: A value that is wrong.
        known: Keys that some object must or may have; they are never left out, or they would be missing.
        is_valid: Whether a value is right.
    """
    size, longest = _size([value])
    if size <= MOST_VALUES:
        return value
    # More items are never more right, so the number from which on the beginning is wrong can be found by halving.
    items = bisect_left(range(longest), 1, lo=min(FEWEST, longest), key=lambda n: 1 - is_valid(cut(value, known, n)))
    beginning = cut(value, known, items)
    return value if is_valid(beginning) else beginning  # The wrong part may come after the beginning of a text.


def cut(value: Any, known: Set[str], items: int) -> Any:
    """Return a value with so many items of each list, so many unknown keys of each object, and its texts cut."""
    if isinstance(value, dict):
        kept = ((key, item) for place, (key, item) in enumerate(value.items()) if place < items or key in known)
        return {key: cut(item, known, items) for key, item in kept}
    if isinstance(value, list):
        return [cut(item, known, items) for item in value[:items]]
    return value[:LONGEST_TEXT] if isinstance(value, str) else value


def _size(value: Any) -> tuple[int, int]:
    """Return how many values are inside a value, and the most in one list or object."""
    size, longest, inside = 0, 0, [value]
    for one in inside:
        if isinstance(one, str):
            size += 10 * len(one) // LONGEST_TEXT
        else:
            size, longest = size + len(one), max(longest, len(one))
            inside += [item for item in (one.values() if isinstance(one, dict) else one) if isinstance(item, _SIZED)]
    return size, longest


_SIZED = (dict, list, str)
