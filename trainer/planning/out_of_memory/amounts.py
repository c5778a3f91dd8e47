"""Amounts of memory as these texts write them: `28.59G`, `20.00 MiB`, `165425291480B`, `31457280kB`."""

from __future__ import annotations

import re

AMOUNT = r"(?:[\d.]+\s?(?:[KMGT]i?B?|kB|bytes|B)|0B|unknown size)"
"""A pattern for one; whatever unit it is in, 1G is 2**30 bytes in all of them."""

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_WRITTEN = re.compile(r"([\d.]+)\s*([KMGTkmgt]?)i?(?:[Bb](?:ytes)?)?")


def bytes_in(text: str | None) -> int | None:
    """Return the bytes of an amount; None for `unknown size`, or where there is none.

    >>> [bytes_in(text) for text in ("15.75G", "20.00 MiB", "6291456 bytes", "0B", "926. GiB", "unknown size")]
    [16911433728, 20971520, 6291456, 0, 994284929024, None]
    """
    written = _WRITTEN.fullmatch(text.strip()) if text else None
    if written is None or written[1].count(".") > 1 or written[1] == ".":
        return None
    power: int = _POWERS[written[2].lower()]
    return round(float(written[1]) * float(1024**power))


def first(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the bytes of the first amount that a pattern's first group finds."""
    found = pattern.search(text)
    return bytes_in(found[1]) if found else None
