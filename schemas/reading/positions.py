"""The places in a JSON text: the line of each value, every duplicate key, every number that is not finite.

This reads text that `json.loads` has accepted, and only when there is something to explain: it is exact but slow
(a few MB per second). It keeps its own stack, so depth cannot exhaust Python's.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field

from schemas.problems.problem import pointer_to
from schemas.reading.limits import MOST_DIGITS

# The possessive quantifiers keep the time linear, also for a string that never ends.
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class DuplicateKey:
    """A duplicate key of one object: its pointer, and both lines."""

    key: str
    pointer: str
    line: int
    first_line: int


@dataclass(frozen=True, kw_only=True)
class NotFinite:
    """A number that is not finite, as it is written."""

    literal: str
    pointer: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Positions:
    """What a scan found; `lines` maps the JSON Pointer of each value to its line, counted from 1."""

    lines: dict[str, int]
    repeated: list[DuplicateKey]
    not_finite: list[NotFinite]


@dataclass(kw_only=True)
class _Container:
    pointer: str
    is_object: bool
    index: int = 0
    key: str | None = None
    seen: dict[str, int] = field(default_factory=dict)


def scan(text: str) -> Positions:
    """Return the places in a valid JSON text."""
    scanner = _Scanner()
    line, last = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        scanner.take(match.group(), line)
    return Positions(lines=scanner.lines, repeated=scanner.repeated, not_finite=scanner.not_finite)


def too_deep(text: str, most: int) -> tuple[int, int] | None:
    """Return line and column of the first bracket that opens more than `most` levels; None if none does."""
    if text.count("{") + text.count("[") <= most:
        return None
    depth = 0
    for match in TOKEN.finditer(text):
        sign = match.group()
        if sign in ("{", "["):
            depth += 1
        elif sign in ("}", "]"):
            depth -= 1
        if depth > most:
            before = text[: match.start()]
            return before.count("\n") + 1, match.start() - before.rfind("\n")
    return None


class _Scanner:
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.repeated: list[DuplicateKey] = []
        self.not_finite: list[NotFinite] = []
        self.stack: list[_Container] = []

    def take(self, sign: str, line: int) -> None:
        inside = self.stack[-1] if self.stack else None
        if sign == ":":
            return
        if sign == "," and inside:
            inside.index += 1
            inside.key = None
        elif sign in ("}", "]"):
            self.stack.pop()
        elif inside and inside.is_object and inside.key is None:
            self._take_key(inside, json.loads(sign, strict=False), line)
        else:
            self._take_value(inside, sign, line)

    def _take_key(self, inside: _Container, key: str, line: int) -> None:
        inside.key = key
        pointer = inside.pointer + pointer_to([key])
        if key in inside.seen:
            first = inside.seen[key]
            self.repeated.append(DuplicateKey(key=key, pointer=pointer, line=line, first_line=first))
        inside.seen.setdefault(key, line)
        self.lines[pointer] = line

    def _take_value(self, inside: _Container | None, sign: str, line: int) -> None:
        if inside is None:
            pointer = ""
        elif inside.is_object:
            pointer = inside.pointer + pointer_to([inside.key or ""])
        else:
            pointer = f"{inside.pointer}/{inside.index}"
        self.lines.setdefault(pointer, line)
        if sign in ("{", "["):
            self.stack.append(_Container(pointer=pointer, is_object=sign == "{"))
        elif not is_finite(sign):
            self.not_finite.append(NotFinite(literal=sign, pointer=pointer, line=line))


def is_finite(literal: str) -> bool:
    """Return False for `NaN`, `Infinity`, `-Infinity` and a number beyond the range of a 64-bit float.

    That range ends within the whole numbers of 309 digits. All of these are refused: validators differ in them.
    """
    if literal[0] in '"tfn':
        return True
    if literal.lstrip("+-").isdigit() and len(literal.lstrip("+-")) > MOST_DIGITS:
        return False
    return math.isfinite(float(literal))
