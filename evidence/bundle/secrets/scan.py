"""Finding secrets and personal details in files before they are handed to others.

Hashes, commits and ids are not secrets: every pattern needs a known prefix or a known name beside the value. A
plain substring search finds the few places where the exact pattern is then tried, which is what makes the scan fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from evidence.bundle.format.rules import refusal
from evidence.bundle.secrets.patterns import BY_ANCHOR, HOME, PRIVATE_KEY, SecretPattern
from schemas.problems import Problem

BLOCK_BYTES = 4 << 20
OVERLAP_BYTES = 8 << 10
"""No pattern is longer than this, so a block that starts this much earlier misses nothing."""
MOST_PER_FILE = 20
"""Findings shown of one file and rule; a log that repeats a token a thousand times is one piece of news."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One secret or personal detail, masked."""

    kind: str
    """What it is, as a noun phrase."""
    code: str
    """Code of the rule: a secret or a personal detail."""
    line: int
    """Line in the file, counted from 1."""
    masked: str
    """Its first characters and its length; never the whole."""


def scan_file(path: Path, shown_as: str) -> list[Problem]:
    """Return a problem for each secret or personal detail in a file.

    Args:
        path: The file; text of any encoding, or binary.
        shown_as: How the file is named in the problems.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        findings = list(find_secrets(file))
    problems = []
    for code in ("TP846", "TP847"):
        found = [finding for finding in findings if finding.code == code]
        problems += [_as_problem(finding, shown_as) for finding in found[:MOST_PER_FILE]]
        if len(found) > MOST_PER_FILE:
            what = f"{len(found) - MOST_PER_FILE:,} more findings of this kind are not listed."
            problems.append(refusal(code, shown_as, what))
    return problems


def find_secrets(file: BinaryIO) -> Iterator[Finding]:
    """Yield what a file holds, in the order of blocks and patterns; the same text on the same line is reported once."""
    told: set[tuple[str, int, str]] = set()
    for block, first_line in _blocks(file):
        lower = block.lower()
        for anchor, patterns in BY_ANCHOR.items():
            for pattern, match in _matches(anchor, patterns, block, lower):
                line = first_line + block.count(b"\n", 0, match.start())
                secret = match.groupdict()["secret"] or match.group()
                finding = Finding(kind=pattern.kind, code=pattern.code, line=line, masked=mask(secret))
                key = (pattern.code, line, finding.masked)
                if key not in told:
                    told.add(key)
                    yield finding


def spans_to_mask(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield where secrets and home folders stand in a text of UTF-8, overlapping ones too."""
    lower = text.lower()
    for anchor, patterns in BY_ANCHOR.items():
        for pattern, match in _matches(anchor, patterns, text, lower):
            if pattern.code == "TP846" or pattern.kind == HOME:
                group = next((name for name in ("secret", "alone") if match.groupdict().get(name)), 0)
                start, end = match.span(group)
                key = PRIVATE_KEY.match(text, start)
                yield start, key.end() if key else end


def encoding_of(head: bytes) -> str | None:
    """Return the encoding that the first two bytes of a file state: UTF-16 of either order, or None for any other."""
    return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(head)


def mask(secret: bytes) -> str:
    """Return the first characters of a secret and its length: `hf_a… (37 characters)`."""
    text = secret.decode("utf-8", "replace")
    seen = min(4, len(text) // 4)
    return f"{text[:seen]}… ({len(text)} characters)"


def _matches(
    anchor: bytes, patterns: Sequence[SecretPattern], block: bytes, lower: bytes
) -> Iterator[tuple[SecretPattern, re.Match[bytes]]]:
    """Yield each match of the patterns that start with an anchor."""
    at = lower.find(anchor)
    while at >= 0:
        for pattern in patterns:
            if match := pattern.match(block, at):
                yield pattern, match
        at = lower.find(anchor, at + 1)


def _blocks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of a file and the line number of each block's first byte; neighbours overlap.

    UTF-16 is turned into UTF-8, so that a token in a Windows log is found as well.
    """
    head = file.read(2)
    file.seek(0)
    wide = encoding_of(head)
    kept, line = b"", 1
    while raw := file.read(BLOCK_BYTES):
        block = kept + (raw.decode(wide, "replace").encode("utf-8") if wide else raw)
        yield block, line
        kept = block[-OVERLAP_BYTES:]
        line += block.count(b"\n") - kept.count(b"\n")


def _as_problem(finding: Finding, shown_as: str) -> Problem:
    """Return the problem of a finding."""
    what = f"Line {finding.line:,} holds {finding.kind}: {finding.masked}."
    return refusal(finding.code, shown_as, what, line=finding.line)
