"""From a pattern to a tree: the part of Python's syntax that can be matched in bounded time."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

LONGEST_PATTERN = 200
MOST_REPEATED = 100
"""Largest number in braces: `a{100}`."""

_FLAGS = re.compile(r"\(\?([ims]+)\)")
_COUNT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_CODES = {"x": 2, "u": 4, "U": 8}
"""Hexadecimal digits of an escape."""


class PatternError(Exception):
    """A pattern that is not one, or not of the part that is matched here; the text states why."""


@dataclass(frozen=True, kw_only=True)
class One:
    """One character of a set, as a pattern of its own."""

    text: str


@dataclass(frozen=True, kw_only=True)
class ZeroWidth:
    """A place between characters: `^`, `$`, `b` (of a word), `B`, `A`, `Z`."""

    kind: str


@dataclass(frozen=True, kw_only=True)
class Brackets:
    """A pair of brackets; `number` counts those that are kept from 1, and is 0 for the others."""

    inner: Node
    number: int


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class Either:
    """One of several, the first that leads to a match."""

    ways: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """The same several times."""

    inner: Node
    least: int
    most: int | None
    greedy: bool


Node = One | ZeroWidth | Brackets | Sequence | Either | Repeat


@dataclass(frozen=True, kw_only=True)
class PatternTree:
    """A pattern as a tree, and the flags for all of it."""

    tree: Node
    flags: re.RegexFlag


def parse(pattern: str) -> PatternTree:
    """Return a pattern as a tree.

    Raises:
        PatternError: it is not a pattern of Python's, or has what cannot be matched in bounded time.
    """
    if len(pattern) > LONGEST_PATTERN:
        message = f"it has {len(pattern)} characters; at most {LONGEST_PATTERN} are taken"
        raise PatternError(message)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(str(error)) from error
    flags, rest = re.RegexFlag(0), pattern
    if stated := _FLAGS.match(pattern):
        flags = re.RegexFlag(sum(getattr(re, letter.upper()) for letter in set(stated[1])))
        rest = pattern[stated.end() :]
    reader = _PatternReader(rest)
    tree = reader.either()
    if may_be_empty(tree):
        message = "it matches nothing at all, which is everywhere"
        raise PatternError(message)
    return PatternTree(tree=tree, flags=flags)


def may_be_empty(node: Node) -> bool:
    """Return whether something matches without a character."""
    match node:
        case One():
            return False
        case ZeroWidth():
            return True
        case Brackets():
            return may_be_empty(node.inner)
        case Sequence():
            return all(map(may_be_empty, node.parts))
        case Either():
            return any(map(may_be_empty, node.ways))
        case Repeat():
            return node.least == 0 or may_be_empty(node.inner)


def first_group(node: Node) -> Node | None:
    """Return what stands in the first brackets that are kept, or None if they are missing."""
    match node:
        case Brackets(number=1):
            return node.inner
        case Brackets() | Repeat():
            return first_group(node.inner)
        case Sequence():
            parts = node.parts
        case Either():
            parts = node.ways
        case _:
            return None
    return next((found for part in parts if (found := first_group(part)) is not None), None)


class _PatternReader:
    """Reads a pattern that `re` has found well formed.

    Args:
        text: without its flags.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0

    def either(self) -> Node:
        """Return everything up to the end or to the bracket that closes."""
        ways = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else Either(ways=tuple(ways))

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(parts=tuple(parts))

    def _atom(self) -> Node:
        first = self._peek()
        self._at += 1
        if first == "(":
            return self._group()
        if first in "^$":
            return ZeroWidth(kind=first)
        if first == "[":
            return self._set()
        if first == "\\":
            return self._escaped()
        return One(text=first if first == "." else re.escape(first))

    def _group(self) -> Brackets:
        number = 0
        if self._text.startswith("?", self._at):
            if not self._text.startswith("?:", self._at):
                kind = self._text[self._at - 1 : self._at + 3]
                message = f"{kind}… is not taken, only (…) and (?:…), and (?i), (?m), (?s) at the beginning"
                raise PatternError(message)
            self._at += 2
        else:
            self._groups += 1
            number = self._groups
        inner = self.either()
        self._at += 1  # the bracket that closes
        return Brackets(inner=inner, number=number)

    def _set(self) -> One:
        start = self._at - 1
        self._at += self._text.startswith("^", self._at)
        self._at += self._text.startswith("]", self._at)
        while self._peek() != "]":
            self._at += 2 if self._peek() == "\\" else 1
        self._at += 1
        return One(text=self._text[start : self._at])

    def _escaped(self) -> Node:
        letter = self._peek()
        self._at += 1
        if letter in "bBAZ":
            return ZeroWidth(kind=letter)
        if letter.isdigit() or letter == "N":
            message = f"\\{letter} is not taken: neither what a group held before, nor codes and names of characters"
            raise PatternError(message)
        self._at += _CODES.get(letter, 0)
        return One(text="\\" + self._text[self._at - 1 - _CODES.get(letter, 0) : self._at])

    def _repeated(self, inner: Node) -> Node:
        counted = _COUNT.match(self._text, self._at)
        sign = self._peek()
        if counted and (counted[1] or counted[2]):
            least = int(counted[1] or 0)
            most = int(counted[3]) if counted[3] else None if counted[2] else least
            self._at = counted.end()
        elif sign and sign in "*+?":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
            self._at += 1
        else:
            return inner
        if max(least, most or 0) > MOST_REPEATED:
            message = f"it repeats something {max(least, most or 0)} times; at most {MOST_REPEATED} are taken"
            raise PatternError(message)
        if most != 1 and may_be_empty(inner):
            message = "it repeats something that may be empty"
            raise PatternError(message)
        greedy = self._peek() != "?"
        self._at += not greedy
        if self._peek() == "+":
            message = "a quantifier with + behind it (possessive) is not taken"
            raise PatternError(message)
        return Repeat(inner=inner, least=least, most=most, greedy=greedy)
