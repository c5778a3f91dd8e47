"""Values out of documents that were not validated: of the right type, or None.

A page shows broken runs too, so nothing here trusts a document's shape; `evidence` states what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_LARGEST_BITS = 1024
"""A whole number that needs more has no place among floating-point numbers, and does not count anything."""


def at(document: Mapping[str, Any] | None, *path: str) -> Any:
    """Return the value at a path of keys, None where a part of the path is missing."""
    node: Any = document
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def text_at(document: Mapping[str, Any] | None, *path: str) -> str | None:
    """Return the text at a path, None if it is absent or no text."""
    value = at(document, *path)
    return value if isinstance(value, str) else None


def number_at(document: Mapping[str, Any] | None, *path: str) -> float | None:
    """Return the finite number at a path, None if it is absent or no such number."""
    value = at(document, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if value.bit_length() < _LARGEST_BITS else None
    return value if math.isfinite(value) else None


def flag_at(document: Mapping[str, Any] | None, *path: str) -> bool | None:
    """Return the truth value at a path, None if it is absent or none."""
    value = at(document, *path)
    return value if isinstance(value, bool) else None


def objects_at(document: Mapping[str, Any] | None, *path: str) -> list[Mapping[str, Any]]:
    """Return the objects in the list at a path; anything else in the list is left out."""
    value = at(document, *path)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
