"""Check a value or a document against its schema. Rows are read and checked by `schemas.reading.read_rows`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from schemas import reading
from schemas.catalog import VERSIONS, YAML_KINDS, schema
from schemas.explain import explain_violations
from schemas.formats import format_value, join_words
from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, unknown_lines, worst_first


class Document(reading.ParseResult):
    """A document, whose value, valid or not, is None if it is not an object. Its problems are sorted, worst first."""

    value: dict[str, Any] | None


def read_document(path: str | Path, kind: str) -> Document:
    """Read a JSON or YAML document and check it against the schema of its kind; never raises on its content."""
    file = str(path)
    try:
        data = _read_bounded(Path(path))
    except OSError as error:
        return Document(problems=(reading.os_error_problem(error, file=file),))
    except ProblemError as refused:
        return Document(problems=refused.problems)
    parsed = reading.parse_yaml(data, file=file) if kind in YAML_KINDS else reading.parse_json(data, file=file)
    if not parsed.is_read:
        return Document(problems=parsed.problems)
    # A place with a problem of the text (NaN, a duplicate key) is not reported a second time for its value.
    reported = {problem.pointer for problem in parsed.problems} - {None}
    found = _check_json(kind, parsed.value, file, parsed.lines)
    problems = [*parsed.problems, *(problem for problem in found if problem.pointer not in reported)]
    value = parsed.value if isinstance(parsed.value, dict) else None
    problems.sort(key=lambda one: one.line or 0)
    return Document(value=value, is_read=True, problems=worst_first(problems), lines=parsed.lines)


def check_value(kind: str, value: Any, *, file: str, lines: Lines = unknown_lines) -> list[Problem]:
    """Check a value against the schema of its kind (`schemas.catalog`); what JSON cannot hold is a problem too.

    Example:
        >>> [problem.what for problem in check_value("eval_item", {"id": "a", "prompt": "1 + 1"}, file="set.jsonl")]
        ['The key "expected" is missing.']
    """
    if reading.is_too_deep(value):
        return [reading.too_deep(file)]
    if (other := _find_other_value(value)) is None:
        return _check_json(kind, value, file, lines)
    pointer, what = other
    form, group = ("YAML", "a group of keys") if kind in YAML_KINDS else ("JSON", "an object")
    return [
        problem_of(
            "TP127",
            file=file,
            pointer=pointer,
            what=f"{what} is not a {form} value.",
            why=None,
            expected=f"{group}, a list, text, a finite number, true, false or null",
        )
    ]


def _read_bounded(path: Path) -> bytes:
    """Read a document, or raise a `ProblemError` if it is too large."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(reading.LARGEST_DOCUMENT + 1) if size <= reading.LARGEST_DOCUMENT else b""
    if (size := max(size, len(data))) > reading.LARGEST_DOCUMENT:
        limit = f"at most {reading.LARGEST_DOCUMENT:,} bytes"
        raise ProblemError([reading.too_large(f"The document has {size:,} bytes", limit, file=str(path))])
    if (values := reading.count_values(data)) > reading.MAX_VALUES:
        limit = f"at most {reading.MAX_VALUES:,} values"
        raise ProblemError([reading.too_large(f"The document has about {values:,} values", limit, file=str(path))])
    return data


def _check_json(kind: str, value: Any, file: str, lines: Lines) -> list[Problem]:
    if not isinstance(value, dict):
        what = "The document is empty." if value is None else f"The document is {format_value(value)}."
        expected = "lines of the form `key: value`" if kind in YAML_KINDS else "an object: keys and values"
        return [problem_of("TP113", file=file, what=what, why=None, expected=expected)]
    problem = _check_version(schema(kind), value, file, lines)
    return [problem] if problem else explain_violations(kind, value, file=file, lines=lines)


def _check_version(document: dict[str, Any], value: dict[str, Any], file: str, lines: Lines) -> Problem | None:
    """Return what is wrong with `schema_version`; without a known version nothing else is checked."""
    expected = join_words(map(format_value, VERSIONS))
    if "schema_version" not in value:
        if "schema_version" not in document.get("required", ()):
            return None
        what = "The document lacks a schema version; nothing else was checked."
        return problem_of("TP114", file=file, what=what, why=None, expected=f'the key "schema_version" with {expected}')
    version = value["schema_version"]
    if version in VERSIONS or "schema_version" not in document.get("properties", ()):
        return None
    what = f"{format_value(version)} is not a schema version; nothing else was checked."
    advice: str | None = "Write the version of the document."
    if isinstance(version, str) and re.fullmatch(r"[0-9]+\.[0-9]+", version):
        what, advice = f"The document has schema version {version}; nothing else was checked.", None
    elif isinstance(version, int | float) and str(version) in VERSIONS:
        advice = "Put it in quotation marks: it is text."
    return problem_of(
        "TP115",
        file=file,
        line=lines("/schema_version"),
        pointer="/schema_version",
        what=what,
        why=None if advice else "The meaning of its fields may differ.",
        expected=expected,
        next=advice,
    )


def _find_other_value(value: Any, pointer: str = "") -> tuple[str, str] | None:
    """Return pointer and description of something that JSON cannot hold (NaN, bytes, an array), or None."""
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    text = "".join(map(str, value)) if isinstance(value, dict) else value
    what = None
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        what = "An object with keys that are not text"
    elif isinstance(text, str) and reading.LONE_SURROGATE.search(text):
        what = "Text with half a surrogate pair"
    elif isinstance(value, float) and not math.isfinite(value):
        what = str(value)
    elif isinstance(value, int) and abs(value) >= 10**reading.MAX_DIGITS:
        what = f"A whole number of more than {reading.MAX_DIGITS} digits"
    elif not isinstance(value, dict | list | str | float | int | None):
        what = f"A value of the Python type {type(value).__name__}"
    if what:
        return pointer, what
    found = (_find_other_value(item, pointer + pointer_to([key])) for key, item in items)
    return next(filter(None, found), None)
