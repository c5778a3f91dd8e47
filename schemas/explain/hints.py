"""The next step for a value of the wrong shape: one sentence, from the value and from who writes the document."""

from __future__ import annotations

import re
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
