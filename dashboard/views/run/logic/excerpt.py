"""The lines of a file that are worth a look: those that are wrong and their neighbours, else the first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

FIRST_LINES = 3
MOST_LINES = 20
_LONGEST_BYTES = 64 * 1024


def excerpt(path: Path, wrong: Collection[int], *, around: int = 0) -> Sequence[tuple[int, str]]:
    """Return lines of a file with their numbers, counted from 1, none longer than 64 KiB.

    Args:
        path: The file.
        wrong: Numbers of the lines that are wrong, of which the first 20 are given. Empty: the first three are given.
        around: How many lines before and after each are given too.

    Raises:
        OSError: The file cannot be read.
    """
    first = sorted(wrong)[:MOST_LINES]
    wanted = {line for number in first for line in range(number - around, number + around + 1)}
    wanted = wanted or set(range(1, FIRST_LINES + 1))
    found = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number > max(wanted):
                break
            if number in wanted:
                found.append((number, line[:_LONGEST_BYTES].decode("utf-8", "replace").rstrip("\r\n")))
    return found
