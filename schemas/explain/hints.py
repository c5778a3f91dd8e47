"""The next step for a value of the wrong shape: one sentence, from the value and from who writes the document.

The validator makes a copy of what is wrong for every rule that is broken, so that a few megabytes with a million wrong
items would take minutes and all of a machine's memory to be explained.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Set
from difflib import get_close_matches
from typing import Any

from schemas.catalog import types_of
from schemas.problems.words import show

BY_PEOPLE = ("target", "train_config", "dataset_row", "eval_item", "notes")
"""Documents that people write; only the program writes the others."""

RESTORE = "Restore the file as trainproof wrote it; people do not write it by hand."

NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def hint(kind: str, node: dict[str, Any], value: Any) -> str:
    """Return the next step for a value that its schema node refuses."""
    return _by_value(node, value) or repair(kind, "Correct the value, then run the same command again.")


def repair(kind: str, by_hand: str) -> str:
    """Return what a user can do: `by_hand` if people write this kind of document."""
    return by_hand if kind in BY_PEOPLE else RESTORE


def _by_value(node: dict[str, Any], value: Any) -> str | None:
    if isinstance(value, str):
        return _by_text(node, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if node.get("minimum") == 0 and node.get("maximum") == 1 and 1 < value <= 100:
        return f"If {value} is a percentage, write {value / 100:g}."
    if value == 0 and "exclusiveMinimum" in node and "null" in types_of(node):
        return "Write null to leave it unset."
    return None


def _by_text(node: dict[str, Any], value: str) -> str | None:
    names = types_of(node)
    if near := get_close_matches(value, [one for one in node.get("enum", []) if isinstance(one, str)], n=1):
        return f"Did you mean {show(near[0])}?"
    if "pattern" in node:
        return _by_pattern(node["pattern"], value)
    if ("number" in names or "integer" in names) and NUMBER.fullmatch(value):
        return f"Write {value} without quotation marks."
    if "boolean" in names and value.lower() in ("yes", "no", "on", "off", "true", "false"):
        return f"Write {'true' if value.lower() in ('yes', 'on', 'true') else 'false'}."
    if "null" in names and value.lower() in ("null", "none", ""):
        return "Write null, without quotation marks."
    return None


def _by_pattern(pattern: str, value: str) -> str | None:
    if re.search(pattern, value.strip()):
        return f"Delete the white space around {show(value.strip())}."
    if re.search(pattern, value.lower()):
        return f"Write it in lower case: {show(value.lower())}."
    if value and re.search(pattern, value + "Z"):
        return f"Add the offset: {show(value + 'Z')} if it is UTC."
    return None


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
