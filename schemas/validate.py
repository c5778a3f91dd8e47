"""A value, a document or a file of rows against its schema: the front door of this package.

`read_rows` and `Rows` live in `rows`; the words of a violation in `explain`. Two documents are never compared here.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.catalog import VERSIONS, schema
from schemas.explain.sentences import YAML_KINDS
from schemas.explain.violations import violations
from schemas.problems.problem import Lines, Problem, ProblemError, pointer_to, unknown_lines, worst_first
from schemas.problems.rule import problem_of
from schemas.problems.words import listed, show
from schemas.reading.json_text import LONE_SURROGATE
from schemas.reading.limits import LARGEST_DOCUMENT, MOST_DIGITS, MOST_VALUES, too_large, values_in
from schemas.reading.parse import parse_json, parse_yaml
from schemas.reading.rows import Rows, read_rows
from schemas.reading.text import ParseResult
from schemas.reading.unreadable import cannot_read

__all__ = ["Document", "Rows", "check_value", "read_document", "read_rows"]


VERSION = re.compile(r"[0-9]+\.[0-9]+")


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document as it was read.

    Attributes:
        value: the object, also if it has problems; None if the file does not hold one.
        problems: everything that is wrong with it, worst first.
        lines: the line of each value in the file.
    """

    value: dict[str, Any] | None
    problems: tuple[Problem, ...]
    lines: Lines = unknown_lines


def read_document(path: str | Path, kind: str) -> Document:
    """Return a document and everything that is wrong with it; never raises on its content.

    Args:
        path: the file; problems carry it as it is written here.
        kind: a kind of document from `catalog`; `train_config` and `target` are read as YAML, which
            includes JSON.
    """
    file = str(path)
    try:
        data = _read_bounded(Path(path))
    except OSError as error:
        return Document(value=None, problems=(cannot_read(error, file=file),))
    except ProblemError as refused:
        return Document(value=None, problems=refused.problems)
    parsed = parse_yaml(data, file=file) if kind in YAML_KINDS else parse_json(data, file=file)
    if not parsed.is_read:
        return Document(value=None, problems=parsed.problems)
    return Document(
        value=parsed.value if isinstance(parsed.value, dict) else None,
        problems=worst_first(sorted([*parsed.problems, *_shape_problems(kind, parsed, file)], key=_line)),
        lines=parsed.lines,
    )


def _read_bounded(path: Path) -> bytes:
    """Return the content of a document.

    Raises:
        OSError: It cannot be read.
        ProblemError: It is too large to be read; nothing of it was.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(LARGEST_DOCUMENT + 1) if size <= LARGEST_DOCUMENT else b""
    if (size := max(size, len(data))) > LARGEST_DOCUMENT:
        limit = f"at most {LARGEST_DOCUMENT:,} bytes"
        raise ProblemError([too_large(f"The document has {size:,} bytes", limit, file=str(path))])
    if (values := values_in(data)) > MOST_VALUES:
        limit = f"at most {MOST_VALUES:,} values"
        raise ProblemError([too_large(f"The document has about {values:,} values", limit, file=str(path))])
    return data


def _line(problem: Problem) -> int:
    return problem.line or 0


def check_value(kind: str, value: Any, *, file: str, lines: Lines | None = None) -> list[Problem]:
    """Return every way in which a value differs from the schema of its kind.

    Args:
        kind: a kind from `catalog`.
        value: dicts, lists, strings, finite numbers, booleans and None; anything else is a problem too.
        file: the name that the problems carry.
        lines: the line of each value in that file.

    Example:
        >>> [problem.what for problem in check_value("eval_item", {"id": "a", "prompt": "1 + 1"}, file="set.jsonl")]
        ['The key "expected" is missing.']
    """
    lines = lines or unknown_lines
    foreign = not_json(value)
    if foreign:
        return [_not_a_json_value(kind, *foreign, file)]
    return _problems_of(kind, value, file, lines)


def _problems_of(kind: str, value: Any, file: str, lines: Lines) -> list[Problem]:
    """Return what `check_value` returns, of a value that a reader of JSON or YAML gave."""
    if not isinstance(value, dict):
        return [_not_an_object(kind, value, file)]
    return _version_problems(kind, value, file, lines) or violations(kind, value, file=file, lines=lines)


def _shape_problems(kind: str, parsed: ParseResult, file: str) -> list[Problem]:
    # A place with a problem of the text (NaN, a key twice) is not reported a second time for what was read there.
    reported = {problem.pointer for problem in parsed.problems} - {None}
    found = _problems_of(kind, parsed.value, file, parsed.lines)
    return [problem for problem in found if problem.pointer not in reported]


def not_json(value: Any) -> tuple[str, Any] | None:
    """Return pointer and value of something that JSON cannot hold, or None: NaN, bytes, an array, half a character."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        pointer, one = waiting.pop()
        if isinstance(one, dict) and all(isinstance(key, str) for key in one):
            waiting.extend((pointer + pointer_to([key]), item) for key, item in one.items())
            one = "".join(one)
        elif isinstance(one, list):
            waiting.extend((f"{pointer}/{index}", item) for index, item in enumerate(one))
            continue
        if isinstance(one, str) and not LONE_SURROGATE.search(one):
            continue
        if one is None or (isinstance(one, int) and abs(one) < 10**MOST_DIGITS):
            continue
        if isinstance(one, float) and math.isfinite(one):
            continue
        return pointer, one
    return None


def _not_a_json_value(kind: str, pointer: str, value: Any, file: str) -> Problem:
    of, group = ("YAML", "a group of keys") if kind in YAML_KINDS else ("JSON", "an object")
    return problem_of(
        "TP127",
        file=file,
        pointer=pointer,
        what=f"{_kind_of_value(value)} is not a {of} value.",
        why=None,
        expected=f"{group}, a list, text, a finite number, true, false or null",
    )


def _kind_of_value(value: Any) -> str:
    # No repr: that of an array can be long, and Python refuses to write an int of thousands of digits.
    if isinstance(value, float):
        return str(value)
    if isinstance(value, int):
        return f"A whole number of more than {MOST_DIGITS} digits"
    if isinstance(value, str):
        return "Text with half a surrogate pair"
    if isinstance(value, dict):
        return "An object with keys that are not text"
    return f"A value of the Python type {type(value).__name__}"


def _version_problems(kind: str, value: dict[str, Any], file: str, lines: Lines) -> list[Problem]:
    """Return what is wrong with `schema_version`: before it is known to be ours, no other rule may be applied."""
    document = schema(kind)
    if "schema_version" not in document.get("properties", {}):
        return []
    if "schema_version" not in value:
        return [_no_version(file)] if "schema_version" in document["required"] else []
    version = value["schema_version"]
    if version in VERSIONS:
        return []
    line = lines("/schema_version")
    if isinstance(version, str) and VERSION.fullmatch(version):
        return [_other_version(version, file, line)]
    return [_not_a_version(version, file, line)]


def _no_version(file: str) -> Problem:
    return problem_of(
        "TP114",
        file=file,
        what="The document does not say which version of the schema it follows; nothing else was checked.",
        why=None,
        expected=f'the key "schema_version" with {_versions()}',
    )


def _other_version(version: str, file: str, line: int | None) -> Problem:
    return problem_of(
        "TP115",
        file=file,
        line=line,
        pointer="/schema_version",
        what=f"The document follows version {version} of the schema; nothing else was checked.",
        why="What its fields mean may differ there, so that a guess could be wrong without a sign.",
        expected=_versions(),
    )


def _not_a_version(version: Any, file: str, line: int | None) -> Problem:
    quoted = isinstance(version, int | float) and str(version) in VERSIONS
    return problem_of(
        "TP115",
        file=file,
        line=line,
        pointer="/schema_version",
        what=f"{show(version)} is not a version of the schema; nothing else was checked.",
        why=None,
        expected=_versions(),
        next="Put it in quotation marks: it is text." if quoted else "Write the version that the document follows.",
    )


def _versions() -> str:
    return listed(map(show, VERSIONS))


def _not_an_object(kind: str, value: Any, file: str) -> Problem:
    what = "The document does not hold a value." if value is None else f"The document is {show(value)}."
    expected = "lines of the form `key: value`" if kind in YAML_KINDS else "an object: keys and values"
    return problem_of("TP113", file=file, what=what, why=None, expected=expected)
