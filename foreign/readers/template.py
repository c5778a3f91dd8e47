"""What is only an example, an expected output or an empty form, so that no result is ever read from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from foreign.readers.text import LogLine
from schemas.problems.problem import pointer_to

FORM = re.compile(
    r"^[\W_]*(?:\w+ ){0,2}(?:example|sample|expected|template|placeholder|mock|dummy)\b(?: \w+){0,3}? ?"
    r"(?:outputs?|logs?|format|results?|runs?|console)\b(?!\s*[:=]\s*[^\s(])"
    r"|\bthis (?:log )?file (?:should|will|is to) (?:contain|be|hold)\b"
    r"|\bthis (?:log )?(?:file )?is (?:a|an|the|only a) (?:placeholder|template|example|sample)\b"
    r"|\b(?:should|to|will) be (?:filled in|filled|populated)\b"
    r"|\breplac(?:e|ing) (?:this|it)?\b.{0,20}\b(?:actual|real|template)\b"
    r"|\bpaste .{0,40}\b(?:outputs?|logs?|results?)\b.{0,20}\bhere\b"
    r"|\bnot yet (?:run|executed)\b|\bawaiting (?:a |the )?(?:real|actual)\b"
    r"|\blog template\b|^[\W_]*status\W+template\b|^[\W_]*placeholder\b|<\s*pending\b",
    re.IGNORECASE,
)
"""A line that opens an example or an empty form."""

REAL = re.compile(
    r"\b(?:paste|copy)\b.{0,50}\bbelow\b|^[\W_]*(?:actual|real) (?:\w+ ){0,2}(?:outputs?|logs?|results?)\b",
    re.IGNORECASE,
)
"""A line below which the real output stands."""

_BELOW = re.compile(r"\b(?:paste|copy)\b.{0,50}\bbelow\b", re.IGNORECASE)

UNFILLED = re.compile(
    r"\bX+\.X{2,}\b|<\s*(?i:pending|todo|tbd|fill[ _-]?in|insert|placeholder|your)\b[^>]*>|\b(?:TBD|TODO|FIXME)\b"
    r"|(?i:\b(?:loss|score|accuracy|n_scored|exact_match)\b)['\"]?\s*[:=]\s*(?:X{2,}|\?{2,}|\.{3})(?![\w.])"
)
"""A place where a value was to be put."""

_FORM_DOCUMENT = re.compile(
    r"\btemplate\b|\bplaceholder\b|\bnot yet (?:run|executed)\b|\bexpected (?:values?|results?|output)\b"
    r"|\bexample (?:values?|results?|output|only)\b|\bfill(?:ed)? (?:in|after)\b|\bupdate (?:with|after)\b",
    re.IGNORECASE,
)
"""A remark that states that a document is an empty form or an example."""

_REMARKS = ("note", "notes", "comment", "_comment", "description", "status", "readme", "_readme", "remark", "remarks")

EXAMPLE_KEY = re.compile(
    r"(?:^|_)(?:expected|example|template|placeholder|targets?|goals?|hypothetical|best_case|expectations?)(?:_|$)"
)
"""A key under which numbers are targets, not measurements."""

_EXAMPLE_NAME = re.compile(r"(?:^|[._ -])(?:expected|example|sample|template|placeholder)(?:[._ -]|$)", re.IGNORECASE)

_OPENING_LINES = 40
"""Lines at the top of a log in which any such words are believed; further down only a heading is."""

_DECORATED = re.compile(r"^\s*[#=*\-\[<_~]")


@dataclass
class Region:
    """Lines of a log that belong together: an example, or what a program printed."""

    form: LogLine | None
    """The line that states that it is an example; None: it is not."""
    lines: list[LogLine] = field(default_factory=list)
    """The lines, without headings."""

    @property
    def is_form(self) -> bool:
        """Whether nothing may be read from it."""
        return self.form is not None

    def closed(self) -> Region:
        """Return the region as what it turned out to be: one with an empty place in it is an example."""
        if self.form is None:
            self.form = next((line for line in self.lines if UNFILLED.search(line.text) and _is_value(line)), None)
        return self


def regions(lines: Sequence[LogLine]) -> list[Region]:
    """Return the regions of a log in order; a log without any such words is one region."""
    found = [Region(form=None)]
    for number, line in enumerate(lines):
        if REAL.search(line.text) and not re.search(r"\bhere\b", line.text):
            if _BELOW.search(line.text) and found[-1].form is None:
                found[-1].form = line  # What stands above such a line are instructions.
            found.append(Region(form=None))
        elif FORM.search(line.text) and (number < _OPENING_LINES or _DECORATED.match(line.text)):
            found.append(Region(form=line))
        else:
            found[-1].lines.append(line)
    return [region.closed() for region in found]


def is_example_name(path: str) -> bool:
    """Return whether the name of a file states that it is an example or a template."""
    return _EXAMPLE_NAME.search(path.rpartition("/")[2]) is not None


def remark_of(document: Any) -> str | None:
    """Return the pointer to the remark that states that a document is a form or an example; None where none does."""
    if not isinstance(document, dict):
        return None
    for key, value in document.items():
        if key.lower() in _REMARKS and isinstance(value, str) and _FORM_DOCUMENT.search(value):
            return pointer_to([key])
        if key.lower().strip("_") in ("is_template", "template", "example", "is_example") and value is True:
            return pointer_to([key])
    return None


def unfilled_places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield pointer and text of every place of a document where a value was to be put."""
    if isinstance(value, str):
        if UNFILLED.search(value) and len(value) < 200:
            yield pointer_to(path), value
        return
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        yield from unfilled_places(item, (*path, key))


def _is_value(line: LogLine) -> bool:
    # A TODO that a library prints in a warning is no empty place.
    return not re.search(r"\b(?:TODO|FIXME)\b", line.text) or bool(re.search(r"[:=]\s*(?:TODO|FIXME)\W*$", line.text))
