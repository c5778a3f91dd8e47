"""Decode text of any encoding, parse printed numbers, and recognise templates with unfilled placeholders."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.problems import pointer_to
from schemas.reading import UTF8_BOM, detect_utf16

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)"
)
"""Pattern of a number: `1,234`, `0.5`, `1e-05`, `nan`."""

_NUMBER = re.compile(NUMBER, re.IGNORECASE)
_WHOLE = re.compile(r"[-+]?\d{1,15}")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00\x08]")

_SINGLE_PRECISION = 1.2e-7
"""Relative error of a number that is stored in 32 bits, as event files do."""


def parse_number(text: str) -> int | float | None:
    """Parse a printed number, or return None if the text is not one.

    Example:
        >>> parse_number("1,234"), parse_number("4e-07"), parse_number("twelve")
        (1234, 4e-07, None)
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "")
    return int(plain) if _WHOLE.fullmatch(plain) else float(plain)


def finite(value: float) -> float | None:
    """Return the number, or None for NaN, infinity and integers that a float cannot hold."""
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def to_number(value: Any) -> int | float | None:
    """Return a finite number, also from text (YAML reads `1e-5` as text), or None for anything else."""
    if isinstance(value, str):
        value = parse_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(value)


def count_decimals(value: float) -> int:
    """Count the decimals that Python prints: 2 for 0.25, 5 for 1e-05, 0 for 3."""
    mantissa, _, exponent = repr(float(value)).partition("e")
    fraction = mantissa.partition(".")[2]
    return max(0, (0 if fraction == "0" else len(fraction)) - int(exponent or 0))


def rounds_to(one: float, other: float, *, min_decimals: int = 0) -> bool:
    """Return whether one number is the other one, rounded or cut to fewer decimals (at least `min_decimals`).

    A number with one decimal may only be rounded: cutting would accept 0.8 for 0.88. A whole number counts as printed
    with three decimals.

    Example:
        >>> rounds_to(4.146, 4.1463695), rounds_to(4.146, 4.1469), rounds_to(2.0, 1.99996), rounds_to(0.8, 0.88)
        (True, True, True, False)
    """
    (places, fewer), (more_places, more) = sorted((count_decimals(value) or 3, value) for value in (one, other))
    can_be_cut = 1 < places < more_places and fewer * more >= 0 and abs(fewer) < abs(more)
    places = max(places, min_decimals)
    slack = _SINGLE_PRECISION * max(abs(one), abs(other))
    if places > 12 or one == other:
        return abs(one - other) <= slack
    return abs(one - other) <= (1.0 if can_be_cut else 0.5) * 10.0**-places + slack


@dataclass(frozen=True)
class Line:
    """One line with its number, without colours; progress bars cut a line into several pieces."""

    number: int
    text: str


@dataclass(frozen=True)
class Text:
    """A decoded file and the name of its encoding."""

    text: str
    encoding: str

    def lines(self) -> Iterator[Line]:
        """Yield the lines that are not blank, split at carriage returns."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            for piece in line.split("\r"):
                if (text := _CONTROL.sub("", piece).rstrip()).strip():
                    yield Line(number, text)


def decode_text(data: bytes) -> Text:
    """Decode a file: UTF-16 and UTF-32 by mark or NUL bytes, then UTF-8, then Windows-1252."""
    if data.startswith(UTF8_BOM):
        return Text(data[3:].decode("utf-8", "replace"), "UTF-8 with a byte order mark")
    if wide := detect_utf16(data):
        encoding = json.detect_encoding(data)
        little = encoding.endswith("le") or data.startswith(b"\xff\xfe")
        return Text(data.decode(encoding, "replace"), f"{wide}, {'little' if little else 'big'} endian")
    try:
        return Text(data.decode("utf-8"), "UTF-8")
    except UnicodeDecodeError:
        return Text(data.decode("cp1252", "replace"), "not UTF-8, read as Windows-1252")


_TEMPLATE_LINE = re.compile(
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
_PASTE_BELOW = re.compile(r"\b(?:paste|copy)\b.{0,50}\bbelow\b", re.IGNORECASE)
_REAL_OUTPUT = re.compile(r"^[\W_]*(?:actual|real) (?:\w+ ){0,2}(?:outputs?|logs?|results?)\b", re.IGNORECASE)
_DECORATED = re.compile(r"^\s*[#=*\-\[<_~]")
_TODO = re.compile(r"\b(?:TODO|FIXME)\b")

PLACEHOLDER = re.compile(
    r"\bX+\.X{2,}\b|<\s*(?i:pending|todo|tbd|fill[ _-]?in|insert|placeholder|your)\b[^>]*>|\b(?:TBD|TODO|FIXME)\b"
    r"|(?i:\b(?:loss|score|accuracy|n_scored|exact_match)\b)['\"]?\s*[:=]\s*(?:X{2,}|\?{2,}|\.{3})(?![\w.])"
)
"""A value that was never filled in: `<PENDING>`, `TBD`, `X.XXXX`, `loss: ...`."""

_TEMPLATE_REMARK = re.compile(
    r"\btemplate\b|\bplaceholder\b|\bnot yet (?:run|executed)\b|\bexpected (?:values?|results?|output)\b"
    r"|\bexample (?:values?|results?|output|only)\b|\bfill(?:ed)? (?:in|after)\b|\bupdate (?:with|after)\b",
    re.IGNORECASE,
)
_EXAMPLE_FILE = re.compile(r"(?:^|[._ -])(?:expected|example|sample|template|placeholder)(?:[._ -]|$)", re.IGNORECASE)

_OPENING_LINES = 40
"""Lines at the top of a log in which every template sentence counts; further down only a heading does."""


def is_example_file(path: str) -> bool:
    """Return whether a file is named as an example or a template."""
    return _EXAMPLE_FILE.search(path.rpartition("/")[2]) is not None


def split_templates(lines: Iterable[Line]) -> tuple[list[Line], list[Line], Line | None]:
    """Return the printed lines, the lines of templates and examples, and the line that shows the first template."""
    regions: list[list[Line]] = [[]]
    openings: list[Line | None] = [None]
    for index, line in enumerate(lines):
        is_below = _PASTE_BELOW.search(line.text)
        if (is_below or _REAL_OUTPUT.search(line.text)) and not re.search(r"\bhere\b", line.text):
            if is_below and openings[-1] is None:
                openings[-1] = line  # Instructions precede such a line.
            regions.append([])
            openings.append(None)
        elif _TEMPLATE_LINE.search(line.text) and (index < _OPENING_LINES or _DECORATED.match(line.text)):
            regions.append([])
            openings.append(line)
        else:
            regions[-1].append(line)
            # A TODO in a library's warning is not a placeholder.
            is_value = not _TODO.search(line.text) or re.search(r"[:=]\s*(?:TODO|FIXME)\W*$", line.text)
            if openings[-1] is None and is_value and PLACEHOLDER.search(line.text):
                openings[-1] = line  # The region is a template as a whole.
    kept = [line for opening, region in zip(openings, regions, strict=True) if opening is None for line in region]
    left_out = [line for opening, region in zip(openings, regions, strict=True) if opening for line in region]
    return kept, left_out, next(filter(None, openings), None)


def template_remark(document: Mapping[str, Any], remarks: Sequence[str]) -> str | None:
    """Return the pointer to the remark that calls a document a template or an example, or None without one."""
    for key, value in document.items():
        is_flag = key.lower().strip("_") in ("is_template", "template", "example", "is_example") and value is True
        if is_flag or (key.lower() in remarks and isinstance(value, str) and _TEMPLATE_REMARK.search(value)):
            return pointer_to([key])
    return None


def iter_texts(
    value: Any, path: tuple[str | int, ...] = (), skip: Container[str] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path and text of every string in a document, except below the keys in `skip`."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in skip and isinstance(item, str | dict | list):
                yield from iter_texts(item, (*path, key), skip)
