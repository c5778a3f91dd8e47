"""The largest document and row that are read into memory; a few bytes of text can take hundreds as values."""

from __future__ import annotations

from typing import BinaryIO

from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a document; 64 first examples of 8,192 tokens, the largest that a run writes, take fifty million."""

MOST_VALUES = 4_000_000
"""Values of a document, as its commas and brackets count them: one of two bytes can take two hundred in memory."""

LONGEST_ROW = 16 << 20
"""Bytes of a row: an answer of a million tokens."""

LARGEST_ROWS = 512 << 20
"""Bytes of a file to which a run appends rows: two million steps."""

MOST_LEVELS = 64
"""Objects and lists inside each other; our deepest document has 6 levels."""

MOST_DIGITS = 308
"""Digits of a whole number; the range of a 64-bit float ends within those of 309."""

_BLOCK = 1 << 20


def values_in(text: bytes) -> int:
    """Return about how many values a text holds, never fewer than it has after its first one."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def line_of(stream: BinaryIO) -> tuple[bytes, int]:
    """Return the next line and its length; the bytes of a line longer than `LONGEST_ROW` are skipped."""
    line = stream.readline(LONGEST_ROW + 1)
    if len(line) <= LONGEST_ROW:
        return line, len(line)
    length = len(line)
    while not line.endswith(b"\n") and (line := stream.readline(_BLOCK)):
        length += len(line)
    return b"", length


def too_large(what: str, limit: str, *, file: str, line: int | None = None) -> Problem:
    """Return the problem of something that was not read for its size.

    Args:
        what: What it is and how large, as the beginning of a sentence: `The row has 20,000,000 bytes`.
        limit: What would have been read, as a noun phrase.
        file: The file's name in the problem.
        line: The line, of a row.
    """
    return problem_of("TP133", file=file, line=line, what=f"{what}; it was not read.", expected=limit)
