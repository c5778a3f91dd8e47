"""Values and enumerations in plain words: `null`, `"abc"`, `a list of 3 items`; `3,000 keys`; `a, b or c`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

LONGEST_SHOWN = 60


def show(value: Any) -> str:
    """Return a value as a message shows it: JSON for a single value, shortened; lists and objects by their size."""
    if isinstance(value, dict):
        return f"an object with {quantity(len(value), 'key')}"
    if isinstance(value, list | tuple):
        return f"a list of {quantity(len(value), 'item')}"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST_SHOWN:
        return text
    cut = text[:LONGEST_SHOWN]
    return f'{cut}…" ({len(value)} characters)' if isinstance(value, str) else f"{cut}…"


def quantity(count: int, noun: str) -> str:
    """Return a number with its noun: `1 key`, `3,000 keys`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def listed(words: Iterable[str], last: str = "or") -> str:
    """Return words as an enumeration: `a, b or c`."""
    *head, tail = list(words)
    return f"{', '.join(head)} {last} {tail}" if head else tail
