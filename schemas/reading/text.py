"""Bytes to text: finds out that a file is not UTF-8 and states what else it is. Also `Parsed`, the result of a reading.

What the text means is for `json_text` and `yaml_text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.problems.problem import Lines, Problem, unknown_lines
from schemas.problems.rule import problem_of
from schemas.problems.words import quantity

BOMS = {b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class ParseResult:
    """The result of reading a text.

    Attributes:
        value: the value; meaningless unless `is_read`.
        is_read: whether there is a value. A text can have problems and a value: a duplicate key, for example.
        problems: everything wrong with the text itself.
        lines: the line of each value.
    """

    value: Any
    is_read: bool
    problems: tuple[Problem, ...]
    lines: Lines


def unread(*problems: Problem) -> ParseResult:
    """Return the result of a reading without a value."""
    return ParseResult(value=None, is_read=False, problems=problems, lines=unknown_lines)


def decode(data: bytes, *, file: str) -> tuple[str | None, tuple[Problem, ...]]:
    """Return the text of a file and what is wrong with its encoding; the text is None where the encoding is wrong."""
    other = other_encoding(data)
    if other:
        problem = problem_of("TP104", file=file, what=f"The file is {other}.", expected="UTF-8 text")
        return None, (problem,)
    problems: list[Problem] = []
    if data.startswith(UTF8_BOM):
        problems.append(problem_of("TP103", file=file, line=1, what="The file begins with a byte order mark."))
        data = data.removeprefix(UTF8_BOM)
    if not data.strip():
        return None, (*problems, problem_of("TP102", file=file, what="The file is empty.", why=None))
    if b"\x00" in data:
        return None, (*problems, nul_bytes(data, file=file))
    try:
        return data.decode("utf-8"), tuple(problems)
    except UnicodeDecodeError as error:
        return None, (*problems, _not_utf8(data, error.start, file=file))


def other_encoding(data: bytes) -> str | None:
    """Return `UTF-16` or `UTF-32` if the bytes begin like one of them, with or without a byte order mark."""
    for bom, name in BOMS.items():
        if data.startswith(bom):
            return name
    # A JSON text begins with an ASCII character, so in UTF-16 and UTF-32 one or three of its first four bytes are NUL.
    zeros = [byte == 0 for byte in data[:4]]
    if zeros in ([True, True, True, False], [False, True, True, True]):
        return "UTF-32"
    if zeros in ([True, False, True, False], [False, True, False, True]):
        return "UTF-16"
    return None


def nul_bytes(data: bytes, *, file: str) -> Problem:
    """Return the problem of a text that holds NUL bytes."""
    first = data.index(b"\x00")
    count = data.count(b"\x00")
    what = f"The text has {quantity(count, 'NUL byte')}."
    return problem_of("TP106", file=file, line=data.count(b"\n", 0, first) + 1, what=what)


def _not_utf8(data: bytes, start: int, *, file: str) -> Problem:
    column = start - data.rfind(b"\n", 0, start)
    what = f"The byte 0x{data[start]:02x} at column {column} is not valid UTF-8."
    return problem_of("TP105", file=file, line=data.count(b"\n", 0, start) + 1, what=what, expected="UTF-8 text")
