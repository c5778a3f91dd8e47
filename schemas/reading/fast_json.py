"""JSON text that a fast decoder is sure of: the strict reader of `json_text` gives the same value.

Documents are small but many: a list of ten thousand runs reads forty thousand. The strict reader needs a millisecond
for one of them, because it looks for duplicate keys, numbers that are not finite and depth in Python.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from schemas.reading.limits import MOST_DIGITS, MOST_LEVELS

UNSURE = object()
"""What `sure` returns where only the strict reader can judge."""

_TOO_MANY_DIGITS = re.compile(f"[0-9]{{{MOST_DIGITS + 1}}}")


def sure(text: str) -> Any:
    """Return the value of a JSON text, or `UNSURE`: the text is wrong, or only looks right.

    Example:
        >>> sure('{"a": 1}')
        {'a': 1}
        >>> sure('{"a": 1, "a": 2}') is UNSURE
        True
    """
    # An escaped quotation mark is missed by the count below.
    if "\\u0022" in text or _TOO_MANY_DIGITS.search(text):
        return UNSURE
    try:
        value = msgspec.json.decode(text)
        marks = quotation_marks(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return UNSURE
    if text.count('"') != marks:
        return UNSURE
    # Few documents have as many objects and lists in all as may be nested.
    if text.count("{") + text.count("[") > MOST_LEVELS and _levels(value) > MOST_LEVELS:
        return UNSURE
    return value


def quotation_marks(value: Any) -> int:
    r"""Return how many quotation marks a JSON text of this value has, if each inside a string is written as `\"`.

    Two around each key and string, and those inside. A text with more of them has something that the value lacks: an
    unknown key, or a duplicate key. `{"a": "x"}` has 4; `{"a": 0, "a": "x"}` gives the same value and has 6.
    """
    # Written by the library that read it: to go through the value in Python takes longer than to read it.
    return msgspec.json.encode(value).count(b'"')


def _levels(value: Any) -> int:
    """Return how deep objects and lists are nested."""
    levels, inside = 0, [value]
    while containers := [one for one in inside if isinstance(one, dict | list)]:
        levels += 1
        inside = [item for one in containers for item in (one.values() if isinstance(one, dict) else one)]
    return levels
