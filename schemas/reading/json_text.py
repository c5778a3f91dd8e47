"""JSON text to a value, strictly: duplicate keys, NaN and 1e999, which Python's own reader accepts, are problems here.

`positions` finds the line of a problem, and reads only texts that have one.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from schemas.problems.problem import Lines, Problem
from schemas.problems.rule import problem_of
from schemas.reading.fast_json import UNSURE, sure
from schemas.reading.limits import MOST_LEVELS
from schemas.reading.positions import DuplicateKey, NotFinite, is_finite, scan, too_deep
from schemas.reading.text import ParseResult, unread

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")
ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<lone>u[dD][89a-fA-F]..)|.)")
"""An escape in a JSON text, a pair of surrogates as one."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _JsonReader:
    """Reads one text and remembers whether something was odd; only then is the place worth finding."""

    def __init__(self) -> None:
        self.is_odd = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_float=self._float, parse_int=self._int, parse_constant=self._constant
        )

    def read(self, text: str) -> Any:
        return self._decoder.decode(text)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        self.is_odd |= len(value) != len(pairs)
        return value

    def _float(self, literal: str) -> float | None:
        if is_finite(literal):
            return float(literal)
        self.is_odd = True
        return None

    def _int(self, literal: str) -> int | None:
        if is_finite(literal):
            return int(literal)
        self.is_odd = True
        return None

    def _constant(self, _literal: str) -> None:
        self.is_odd = True


def read_json(text: str, *, file: str) -> ParseResult:
    """Return the value of a JSON text; a duplicate key has its last value, a number that is not finite is null."""
    value = sure(text)
    if value is UNSURE:
        return _read_strictly(text, file=file)
    return ParseResult(value=value, is_read=True, problems=(), lines=lines_of(text))


def _read_strictly(text: str, *, file: str) -> ParseResult:
    deep = too_deep(text, MOST_LEVELS)
    if deep:
        return unread(_too_deep(*deep, file=file))
    reader = _JsonReader()
    try:
        value = reader.read(text)
    except json.JSONDecodeError as error:
        return unread(_syntax(text, error, file=file))
    if SURROGATE_ESCAPE.search(text) and not is_text(value):
        return unread(_lone_surrogate(text, file=file))
    problems: list[Problem] = []
    if reader.is_odd:
        positions = scan(text)
        problems += [_repeated_key(one, file=file) for one in positions.repeated]
        problems += [_not_finite(one, file=file) for one in positions.not_finite]
    return ParseResult(value=value, is_read=True, problems=tuple(problems), lines=lines_of(text))


def lines_of(text: str) -> Lines:
    """Return the line of each value of a valid JSON text; the text is scanned at the first question."""

    @cache
    def found() -> dict[str, int]:
        return scan(text).lines

    return lambda pointer: found().get(pointer)


def is_text(value: Any) -> bool:
    """Return whether every key and string inside a JSON value can be written as UTF-8."""
    return not LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False))


def _repeated_key(one: DuplicateKey, *, file: str) -> Problem:
    first = f", first on line {one.first_line}" if one.first_line != one.line else ""
    what = f"Duplicate key {json.dumps(one.key, ensure_ascii=False)} in one object{first}."
    return problem_of("TP109", file=file, line=one.line, pointer=one.pointer, what=what)


def _not_finite(one: NotFinite, *, file: str) -> Problem:
    shown = one.literal if len(one.literal) <= 24 else f"{one.literal[:20]}… ({len(one.literal)} characters)"
    if one.literal[-1].isdigit():
        what = f"{shown} is too large: not every reader can hold it."
    else:
        what = f"{shown} is not a JSON number."
    expected = "a finite number"
    return problem_of("TP110", file=file, line=one.line, pointer=one.pointer, what=what, why=None, expected=expected)


def _too_deep(line: int, column: int, *, file: str) -> Problem:
    what = f"Objects and lists are nested more than {MOST_LEVELS} levels deep, at column {column}."
    return problem_of("TP111", file=file, line=line, what=what, why=None)


def _lone_surrogate(text: str, *, file: str) -> Problem:
    at = next((match.start() for match in ESCAPE.finditer(text) if match["lone"]), 0)
    what = "A \\uD800–\\uDFFF escape has no other half; only a pair of them makes a character."
    return problem_of("TP112", file=file, line=text.count("\n", 0, at) + 1, what=what)


def _syntax(text: str, error: json.JSONDecodeError, *, file: str) -> Problem:
    what, advice = _explain(text, error)
    what = f"This is not JSON: {what} at column {error.colno}."
    return problem_of("TP107", file=file, line=error.lineno, what=what, why=None, next=advice)


def _explain(text: str, error: json.JSONDecodeError) -> tuple[str, str]:
    """Return what is wrong at a place and what to do; the reader's own words are never shown."""
    rest = text[error.pos :].lstrip()
    before = text[: error.pos].rstrip()
    if not rest:
        return "it ends in the middle", "Restore the file from a copy, or write it again; it seems to be cut off."
    for begins, what, advice in _BY_MESSAGE:
        if error.msg.startswith(begins):
            return what, advice
    if before.endswith(":") and rest[0] in "},":
        return "a value is missing", "Add it after the colon, or delete the key."
    if (rest[0] in "}]" and before.endswith(",")) or rest[0] == ",":
        return "one comma is too many", "Delete the comma: the last item of an object or list has none after it."
    if not before:
        return _beginning(rest)
    for signs, what, advice in _BY_TEXT:
        if rest.startswith(signs):
            return what, advice
    if error.msg.startswith("Expecting property name"):
        return "a key is not in quotation marks", 'Write keys in double quotation marks: "key".'
    return f"{_shown_sign(rest[0])} is not expected", "Correct the text there."


def _beginning(text: str) -> tuple[str, str]:
    """Return what is wrong with the first character. A stranger may have named the file, so nothing of it is quoted."""
    if text.startswith("version https://git-lfs."):
        return "it is a Git LFS pointer in place of the file", "Fetch the file with `git lfs pull`."
    return "it does not begin as JSON does", "Check that this is the file that was meant."


_BY_MESSAGE = (
    ("Extra data", "text follows the end of the document", "Keep one document in the file; delete what follows it."),
    (
        "Unterminated string",
        "a string has no end; it begins",
        "Add the closing quotation mark, or restore the file if it is cut off.",
    ),
    (
        "Invalid control character",
        "a string holds a line end or control character",
        "Write it as an escape, such as \\n or \\t.",
    ),
    ("Invalid \\", "a backslash begins no escape that JSON knows", "Write a backslash in a string as \\\\."),
    ("Expecting ',' delimiter", "a comma or a closing bracket is missing", "Add it there."),
    ("Expecting ':' delimiter", "a colon is missing after a key", "Add it there."),
    ("Illegal trailing comma", "one comma is too many", "Delete the comma: the last item has none after it."),
)

_BY_TEXT = (
    (("'",), "a single quotation mark", 'Write strings and keys in double quotation marks: "text".'),
    (("//", "/*", "#"), "a comment", "Delete it: JSON has no comments."),
    (("True", "False", "None"), "a Python value", "Write true, false or null, in lower case."),
    (("nan", "inf", "+", "."), "a number that is not written as JSON writes numbers", "Write it like 0.5 or null."),
)


def _shown_sign(sign: str) -> str:
    return f'"{sign}"' if sign.isprintable() else f"U+{ord(sign):04X}"
