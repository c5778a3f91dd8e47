"""Finding the last match of a pattern in a text, by following all ways at once (a Pike machine).

Each character is looked at once for each instruction at most, in the order in which Python's matcher would try the
ways, so that what is found is what `re` finds (R. Cox, "Regular Expression Matching: the Virtual Machine Approach",
2009). Text and steps are limited, by numbers and not by a clock: every machine finds the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from evidence.scores.patterns.parse import (
    Brackets,
    Either,
    Node,
    One,
    PatternError,
    PatternTree,
    Repeat,
    Sequence,
    ZeroWidth,
    first_group,
    parse,
)

LONGEST_TEXT = 20_000
"""Characters of a text, the last ones, in which a pattern is looked for."""
MOST_STEPS = 200_000
"""Instructions followed in one text; a pattern that needs more finds nothing."""
MOST_INSTRUCTIONS = 500

_EDGES = ("", " ", "\n", "\t")
"""White space that is taken off an answer."""

_Kept = tuple[int, int]
"""Where the first group began and ended; −1: not yet."""
_Thread = tuple[int, int, _Kept]
"""Instruction, where the match began, and the first group."""


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One step of a machine."""

    what: str
    """one, place, split (first `to`, then `other`), jump, open, close or match."""
    holds: Callable[[str], bool] | None = None
    """Whether a character is of the set."""
    kind: str = ""
    """Of a place."""
    to: int = 0
    other: int = 0


class Machine:
    """A pattern that can be looked for.

    Args:
        pattern: as a tree.

    Raises:
        PatternError: it becomes too large.
    """

    def __init__(self, pattern: PatternTree) -> None:
        self._flags = pattern.flags
        self._begins = _literal(pattern)
        self._program: list[Instruction] = []
        self._write(pattern.tree)
        self._add(Instruction(what="match"))

    def last(self, text: str) -> str | None:
        """Return the first group of the last match, or the match where there is no group, or None if it is missing."""
        text = text[-LONGEST_TEXT:]
        found: str | None = None
        at, steps = 0, MOST_STEPS
        while at < len(text):
            match, steps = self._first(text, at, steps)
            if match is None:
                break
            start, at, (opened, closed) = match
            whole = text[start:at]
            found = text[opened:closed] if closed >= 0 else whole
        return found if steps > 0 else None

    def _first(self, text: str, at: int, steps: int) -> tuple[tuple[int, int, _Kept] | None, int]:
        """Return the leftmost match from a place on, with the steps that are left."""
        if (at := text.find(self._begins, at)) < 0:
            return None, steps
        best: tuple[int, int, _Kept] | None = None
        threads: list[_Thread] = []
        for place in range(at, len(text) + 1):
            ready: list[_Thread] = []
            seen: set[int] = set()
            starts = [] if best else [(0, place, (-1, -1))]
            for thread in (*threads, *starts):
                self._follow(thread, text, place, ready, seen)
            steps -= len(seen) + 1
            if steps <= 0:
                return None, 0
            threads = []
            for pc, start, kept in ready:
                step = self._program[pc]
                if step.what == "match":
                    best = (start, place, kept)
                    break  # what comes behind would be tried only if this failed
                if place < len(text) and step.holds is not None and step.holds(text[place]):
                    threads.append((pc + 1, start, kept))
            if best and not threads:
                break
        return best, steps

    def _follow(self, thread: _Thread, text: str, place: int, ready: list[_Thread], seen: set[int]) -> None:
        """Add all instructions that read a character and are reached from here, in the order of preference."""
        waiting = [thread]
        while waiting:
            pc, start, kept = waiting.pop()
            if pc in seen:
                continue
            seen.add(pc)
            step = self._program[pc]
            if step.what in ("one", "match"):
                ready.append((pc, start, kept))
            elif step.what == "jump":
                waiting.append((step.to, start, kept))
            elif step.what == "split":
                waiting += [(step.other, start, kept), (step.to, start, kept)]
            elif step.what == "open":
                waiting.append((pc + 1, start, (place, -1)))
            elif step.what == "close":
                waiting.append((pc + 1, start, (kept[0], place)))
            elif self._is_at(step.kind, text, place):
                waiting.append((pc + 1, start, kept))

    def _is_at(self, kind: str, text: str, place: int) -> bool:
        before, after = text[place - 1 : place] if place else "", text[place : place + 1]
        if kind in "bB":
            return (_is_word(before) != _is_word(after)) == (kind == "b")
        lines = bool(self._flags & re.MULTILINE)
        if kind in "^A":
            return not place or (kind == "^" and lines and before == "\n")
        if kind == "$" and (after == "\n" and (lines or place == len(text) - 1)):
            return True
        return place == len(text)

    def _add(self, instruction: Instruction) -> int:
        if len(self._program) >= MOST_INSTRUCTIONS:
            message = f"it becomes more than {MOST_INSTRUCTIONS} steps; use fewer or smaller repetitions"
            raise PatternError(message)
        self._program.append(instruction)
        return len(self._program) - 1

    def _write(self, node: Node) -> None:
        match node:
            case One():
                self._add(Instruction(what="one", holds=_holds(node.text, self._flags)))
            case ZeroWidth():
                self._add(Instruction(what="place", kind=node.kind))
            case Brackets():
                if node.number == 1:
                    self._add(Instruction(what="open"))
                self._write(node.inner)
                if node.number == 1:
                    self._add(Instruction(what="close"))
            case Sequence():
                for part in node.parts:
                    self._write(part)
            case Either():
                self._write_ways(node.ways)
            case Repeat():
                self._write_repeat(node)

    def _write_ways(self, ways: tuple[Node, ...]) -> None:
        ends = []
        for way in ways[:-1]:
            split = self._add(Instruction(what="split"))
            self._write(way)
            ends.append(self._add(Instruction(what="jump")))
            self._program[split] = Instruction(what="split", to=split + 1, other=len(self._program))
        self._write(ways[-1])
        for end in ends:
            self._program[end] = Instruction(what="jump", to=len(self._program))

    def _write_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._write(node.inner)
        if node.most is None:
            split = self._add(Instruction(what="split"))
            self._write(node.inner)
            self._add(Instruction(what="jump", to=split))
            self._choose(split, greedy=node.greedy)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self._add(Instruction(what="split")))
            self._write(node.inner)
        for split in splits:
            self._choose(split, greedy=node.greedy)

    def _choose(self, split: int, *, greedy: bool) -> None:
        """Let a split try what follows it first, or the end of the program so far."""
        go_on, leave = split + 1, len(self._program)
        to, other = (go_on, leave) if greedy else (leave, go_on)
        self._program[split] = Instruction(what="split", to=to, other=other)


def _literal(pattern: PatternTree) -> str:
    """Return the text with which every match begins, as far as it is plain; empty if nothing is."""
    tree = pattern.tree
    parts = tree.parts if isinstance(tree, Sequence) else (tree,)
    plain: list[str] = []
    for part in parts:
        if not isinstance(part, One) or pattern.flags & re.IGNORECASE or re.escape(part.text[-1]) != part.text:
            break
        plain.append(part.text[-1])
    return "".join(plain)


def _holds(text: str, flags: re.RegexFlag) -> Callable[[str], bool]:
    """Return whether a character is of a set that is written as a pattern; one character takes no time."""
    one = re.compile(text, flags).fullmatch
    return lru_cache(maxsize=256)(lambda character: one(character) is not None)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@lru_cache(maxsize=32)
def machine_of(pattern: str) -> Machine:
    """Return what looks for a pattern.

    Raises:
        PatternError: it is not one, or not of the part that is matched here.
    """
    return Machine(parse(pattern))


def could_read(pattern: str, text: str) -> bool:
    """Return whether a text could be what a pattern reads, with white space around it or without.

    >>> could_read("#### ([0-9]+)", "7"), could_read("#### ([0-9]+)", "seven")
    (True, False)
    """
    texts = [f"{before}{text}{after}" for before in _EDGES for after in _EDGES]
    return any(machine.last(each) is not None for machine in _whole(pattern) for each in texts)


@lru_cache(maxsize=32)
def _whole(pattern: str) -> tuple[Machine, ...]:
    """Return what looks for texts that are, from end to end, the first group of a pattern, or all of it."""
    found = parse(pattern)
    read = [each for each in (first_group(found.tree), found.tree) if each is not None]
    trees = [Sequence(parts=(ZeroWidth(kind="A"), each, ZeroWidth(kind="Z"))) for each in read]
    return tuple(Machine(PatternTree(tree=tree, flags=found.flags)) for tree in trees)


def matches_whole(pattern: str, text: str) -> bool:
    r"""Return whether a pattern matches a text from its first character to its last; longer texts than are read do not.

    >>> matches_whole("a+", "aa"), matches_whole("a+$", "aa\n"), matches_whole("(?m)^a$", "a\nb")
    (True, False, False)
    """
    return len(text) <= LONGEST_TEXT and _whole(pattern)[-1].last(text) is not None
