"""Read JSON, YAML and JSONL files strictly; every problem has file, line and pointer.

Duplicate keys, NaN, 1e999, aliases and tags, which Python's readers accept, are problems here. No content of a file
raises an exception. Documents are checked against their schema in `validate`, rows here.
"""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from schemas.catalog import APPENDED, TIME, number_names
from schemas.explain import compile_validator, explain_violations
from schemas.formats import format_value, quantity
from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, unknown_lines

LARGEST_DOCUMENT = 64 << 20  # bytes of a document; 64 first examples of 8,192 tokens take 50 million

MAX_VALUES = 4_000_000
"""Values of a document, estimated from its commas and brackets; a value of two bytes can take 200 bytes of memory."""

MAX_ROW_BYTES = 16 << 20  # bytes of a row; an answer of a million tokens fits
LARGEST_ROWS = 512 << 20  # bytes of a JSONL file; two million steps fit
MAX_CHARACTERS = 1 << 20  # characters of a YAML file; a longer configuration is a mistake or an attack
MAX_LEVELS = 64  # levels of nested objects and lists; our deepest document has 6
MAX_DIGITS = 308  # digits of an integer; larger ones may not fit into a 64-bit float
MAX_EXPLAINED = 100  # lines of a JSONL file whose problems are explained
MAX_COUNTED = 1_000  # further lines with problems that are counted before reading stops

BATCH_BYTES = 1 << 15
"""Bytes of rows per batch of decoding and validation; a batch should fit into the processor's cache."""


@dataclass(frozen=True, kw_only=True)
class ParseResult:
    """Problems of a text, and its value with the line of each part if `is_read`.

    A text can have both a value and problems, such as a duplicate key.
    """

    problems: tuple[Problem, ...] = ()
    value: Any = None
    is_read: bool = False
    lines: Lines = unknown_lines


def parse_json(data: bytes, *, file: str) -> ParseResult:
    """Parse a JSON file; `file` is its name in problems."""
    text, problems = decode(data, file=file)
    if text is None:
        return ParseResult(problems=problems)
    parsed = read_json(text, file=file)
    return replace(parsed, problems=(*problems, *parsed.problems))


def parse_yaml(data: bytes, *, file: str) -> ParseResult:
    """Parse a YAML file, which may begin with a byte order mark."""
    text, problems = decode(data.removeprefix(UTF8_BOM), file=file)
    return ParseResult(problems=problems) if text is None else read_yaml(text, file=file)


# Files and encodings


def too_large(what: str, limit: str, *, file: str) -> Problem:
    """Return the problem of a file or row above a size limit: `The row has 20,000,000 bytes`, `at most 16 MiB`."""
    return problem_of("TP133", file=file, what=f"{what}, more than are read.", expected=limit)


def count_values(text: bytes) -> int:
    """Estimate how many values a text holds, by its commas and opening brackets."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


_OS_ERRORS = {
    errno.ENOENT: ("The file does not exist.", "Check the path, or write the file first."),
    errno.EISDIR: ("The path is a folder, not a file.", "Check the path."),
    errno.ENOTDIR: ("A folder in the path is a file.", "Check the path."),
    errno.ENAMETOOLONG: (None, "Give a shorter path."),
    errno.EACCES: (None, "Check the permissions of the path and of every folder above it."),
    errno.EPERM: (None, "Check the permissions of the path and of every folder above it."),
    errno.ENOSPC: (None, "Free some disk space, or write to another place."),
    errno.ELOOP: (None, "Give the path of the file itself: the links form a loop."),
}


def os_error_problem(error: OSError, *, file: str | None = None) -> Problem:
    """Return the problem of a path that the operating system refused: missing, too long, no access, disk full."""
    path = file or ("" if error.filename is None else str(error.filename))
    what, advice = _OS_ERRORS.get(error.errno or 0, (None, "Check the path and the disk, and try again."))
    return problem_of(
        "TP101",
        file=path if len(path) <= 300 else f"{path[:300]}…",
        what=what or f"The operating system reports: {error.strerror or error}.",
        why=None,
        next=advice,
    )


UTF8_BOM = b"\xef\xbb\xbf"


def decode(data: bytes, *, file: str) -> tuple[str | None, tuple[Problem, ...]]:
    """Decode UTF-8; return the text, or None if the encoding is wrong, and the problems."""
    if other := detect_utf16(data):
        return None, (problem_of("TP104", file=file, what=f"The file is {other}.", expected="UTF-8 text"),)
    problems: list[Problem] = []
    if data.startswith(UTF8_BOM):
        problems.append(problem_of("TP103", file=file, line=1, what="The file begins with a byte order mark."))
        data = data.removeprefix(UTF8_BOM)
    if not data.strip():
        return None, (*problems, problem_of("TP102", file=file, what="The file is empty.", why=None))
    if b"\x00" in data:
        line = data.count(b"\n", 0, data.index(b"\x00")) + 1
        what = f"The text has {quantity(data.count(bytes(1)), 'NUL byte')}."
        return None, (*problems, problem_of("TP106", file=file, line=line, what=what))
    try:
        return data.decode(), tuple(problems)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        what = f"The byte 0x{data[error.start]:02x} at column {column} is not valid UTF-8."
        return None, (*problems, problem_of("TP105", file=file, line=line, what=what, expected="UTF-8 text"))


def detect_utf16(data: bytes) -> str | None:
    """Return `UTF-16` or `UTF-32`, with or without a byte order mark, or None for other encodings."""
    is_zero = not data[:4].strip(b"\x00")  # left behind by a crash
    name = "utf-8" if is_zero else json.detect_encoding(data)
    return None if name.startswith("utf-8") else name[:6].upper()


LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def has_lone_surrogate(value: Any) -> bool:
    """Return whether a key or string inside a JSON value cannot be written as UTF-8."""
    return LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)) is not None


def is_too_deep(value: Any) -> bool:
    """Return whether lists and objects are nested more than `MAX_LEVELS` levels deep."""
    values = [value]
    for _ in range(MAX_LEVELS + 1):
        containers = [item for item in values if isinstance(item, dict | list)]
        if not containers:
            return False
        values = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
    return True


# JSON


class _JsonDecoder(json.JSONDecoder):
    """Decodes JSON, and notes duplicate keys and non-finite numbers, which become None."""

    scan_once: Callable[[str, int], tuple[Any, int]]

    def __init__(self) -> None:
        self.needs_scan = False
        super().__init__(
            object_pairs_hook=self._object, parse_float=self._float, parse_int=self._int, parse_constant=self._constant
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            self.needs_scan = True
        return value

    def _float(self, literal: str) -> float | None:
        value = float(literal)
        return value if math.isfinite(value) else self._constant(literal)

    def _int(self, literal: str) -> int | None:
        return int(literal) if len(literal.lstrip("-")) <= MAX_DIGITS else self._constant(literal)

    def _constant(self, _literal: str) -> Any:
        self.needs_scan = True


def read_json(text: str, *, file: str) -> ParseResult:
    """Read a JSON text. If a key is repeated, its last value is used; non-finite numbers become None."""
    decoder = _JsonDecoder()
    try:
        value = decoder.decode(text)
        is_deep = text.count("{") + text.count("[") > MAX_LEVELS and is_too_deep(value)
    except json.JSONDecodeError as error:
        return ParseResult(problems=(_not_json(text, error, file=file),))
    except RecursionError:
        is_deep = True
    if is_deep:
        return ParseResult(problems=(too_deep(file),))
    if "\\" in text and has_lone_surrogate(value):
        at = next((match.start() for match in _ESCAPE.finditer(text) if match["lone"]), 0)
        what = "A \\uD800–\\uDFFF escape is not part of a surrogate pair."
        return ParseResult(problems=(problem_of("TP112", file=file, line=text.count("\n", 0, at) + 1, what=what),))

    @cache
    def lines() -> dict[str, int]:
        return scan(text, file=file)[0]

    problems = tuple(scan(text, file=file)[1]) if decoder.needs_scan else ()
    return ParseResult(value=value, is_read=True, problems=problems, lines=lambda pointer: lines().get(pointer))


_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<lone>u[dD][89a-fA-F]..)|.)")
"""An escape in a JSON text; a surrogate pair is one."""

# The possessive quantifiers keep the time linear, also for a string that never ends.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def scan(text: str, *, file: str) -> tuple[dict[str, int], list[Problem]]:
    """Find the line of each value in a valid JSON text, duplicate keys, and numbers that are not finite.

    A few MB per second, so it is only used to report problems.

    Returns:
        The line of each value by its JSON Pointer, and the problems.
    """
    lines: dict[str, int] = {}
    problems: list[Problem] = []
    opened: list[tuple[str, bool, dict[str, int]]] = []  # pointer, whether it is an object, lines of its keys
    keys: list[str | int | None] = [None]  # the current key or index of each open container
    line = 1
    last = 0
    for match in _TOKEN.finditer(text):
        part = match.group()
        line += text.count("\n", last, match.start())
        last = match.start()
        if part == ":":
            continue
        if part in ("}", "]"):
            opened.pop()
            keys.pop()
            continue
        above, is_object, seen = opened[-1] if opened else ("", False, {})
        key = keys[-1]
        if part == ",":
            keys[-1] = key + 1 if isinstance(key, int) else None
        elif is_object and key is None:
            keys[-1] = name = json.loads(part, strict=False)
            pointer = above + pointer_to([name])
            if name in seen:
                problems.append(_duplicate_key(name, file, pointer, line, seen[name]))
            lines[pointer] = seen[name] = line
        else:
            pointer = above + pointer_to([key]) if key is not None else ""
            lines.setdefault(pointer, line)
            if part in ("{", "["):
                opened.append((pointer, part == "{", {}))
                keys.append(None if part == "{" else 0)
            elif part[0] not in '"tfn' and not _is_finite(part):
                problems.append(_not_finite(part, file, pointer, line))
    return lines, problems


def _is_finite(literal: str) -> bool:
    digits = literal.lstrip("+-")
    return len(digits) <= MAX_DIGITS if digits.isdigit() else math.isfinite(float(literal))


def _duplicate_key(key: str, file: str, pointer: str, line: int, first_line: int) -> Problem:
    first = f", first on line {first_line}" if first_line != line else ""
    what = f"Duplicate key {json.dumps(key, ensure_ascii=False)}{first}."
    return problem_of("TP109", file=file, line=line, pointer=pointer, what=what)


def _not_finite(literal: str, file: str, pointer: str, line: int) -> Problem:
    shown = literal if len(literal) <= 24 else f"{literal[:20]}… ({len(literal)} characters)"
    what = f"{shown} is too large for a number." if literal[-1].isdigit() else f"{shown} is not a finite number."
    return problem_of("TP110", file=file, line=line, pointer=pointer, what=what, why=None, expected="a finite number")


def too_deep(file: str, line: int | None = None) -> Problem:
    """Return the problem of a text or value for which `is_too_deep` is true."""
    what = f"Objects and lists are nested more than {MAX_LEVELS} levels deep."
    return problem_of("TP111", file=file, line=line, what=what, why=None)


def _not_json(text: str, error: json.JSONDecodeError, *, file: str) -> Problem:
    if error.msg.startswith("Illegal trailing comma"):
        # Python 3.13 points to the comma, earlier versions to the bracket.
        after = text[error.pos + 1 :]
        error = json.JSONDecodeError("Expecting value", text, len(text) - len(after.lstrip()))
    rest, before = text[error.pos :].lstrip(), text[: error.pos].rstrip()
    what, advice = "it ends in the middle", "Restore the file from a copy, or write it again; it seems to be cut off."
    if rest:
        around = f"{before[-1:]} {rest}"
        found = (
            explained
            for (message, pattern), explained in _JSON_MISTAKES.items()
            if error.msg.startswith(message) and re.match(pattern, around)
        )
        what, advice = next(found, (f"{format_value(rest[0])} is not expected", "Correct the text there."))
    what = f"This is not JSON: {what} at column {error.colno}."
    return problem_of("TP107", file=file, line=error.lineno, what=what, why=None, next=advice)


_JSON_MISTAKES = {
    ("Extra data", ""): ("text follows the end of the document", "Delete what follows; a file holds one document."),
    ("Unterminated", ""): ("a string without an end", "Add the closing quotation mark, or restore the file."),
    ("Invalid control", ""): ("a control character in a string", "Write it as an escape, such as \\n or \\t."),
    ("Invalid \\", ""): ("an invalid escape", "Write a backslash in a string as \\\\."),
    ("Expecting ',' delimiter", ""): ("a comma or a closing bracket is missing", "Add it there."),
    ("Expecting ':' delimiter", ""): ("a colon is missing after a key", "Add it there."),
    ("", ": [},]"): ("a value is missing", "Add it after the colon, or delete the key."),
    ("", r", [}\]]|.? ,"): ("one comma is too many", "Delete the comma after the last item."),
    # The text is not quoted here: it may be any file of this machine.
    ("", r" version https://git-lfs\."): ("it is a Git LFS pointer, not the file", "Fetch it with `git lfs pull`."),
    ("", " "): ("it does not begin like JSON", "Check that this is the right file."),
    ("", ".? '"): ("a single quotation mark", 'Write strings and keys in double quotation marks: "text".'),
    ("", r".? (//|/\*|#)"): ("a comment", "Delete it: JSON does not support comments."),
    ("", ".? (True|False|None)"): ("a Python value", "Write true, false or null, in lower case."),
    ("", r".? (nan|inf|\+|\.)"): ("an invalid number", "Write it like 0.5, or null."),
    ("Expecting property", ""): ("a key is not in quotation marks", 'Write keys in double quotation marks: "key".'),
}
"""What is wrong and what to do, by the decoder's message and the text around the place where it stopped."""


# YAML: the core schema of YAML 1.2, where `no` is text and 1e-3 is a number. PyYAML's own rules are those of YAML 1.1.

_INTEGER = re.compile(rf"[-+]?[0-9]{{1,{MAX_DIGITS}}}|0x[0-9a-fA-F]{{1,64}}|0o[0-7]{{1,64}}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def read_yaml(text: str, *, file: str) -> ParseResult:
    """Read a YAML text without anchors, aliases and tags, by the core schema of YAML 1.2.

    If a key is repeated, its last value is used; `.nan` and `.inf` become None.
    """
    # Imported here, as commands that read no configuration do not need it.
    import yaml

    builder = _YamlBuilder(file)
    bad_escape = problem_of("TP112", file=file, what="An escape (\\u or \\U) is not a valid character.")
    try:
        if len(text) > MAX_CHARACTERS:
            builder.refuse(f"The file has {len(text):,} characters.", None, "Check that this is the right file.")
        if control := yaml.reader.Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, control.start()) + 1
            builder.refuse(f"The text holds a control character (U+{ord(control.group()):04X}).", line, "Delete it.")
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except ProblemError as refused:
        return ParseResult(problems=refused.problems)
    except yaml.MarkedYAMLError as error:
        is_escape = "Unicode character escape" in (error.problem or "")
        return ParseResult(problems=(bad_escape if is_escape else _not_yaml(text, error, file=file),))
    except (ValueError, OverflowError):  # PyYAML's own parser passes any code point to chr().
        return ParseResult(problems=(bad_escape,))
    if "\\" in text and has_lone_surrogate(builder.value):
        return ParseResult(problems=(bad_escape,))
    return ParseResult(value=builder.value, is_read=True, problems=tuple(builder.problems), lines=builder.lines.get)


class _YamlBuilder:
    """Builds a value from the parser's events, without recursion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.value: Any = None
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}
        self._documents = 0
        self._open: list[tuple[dict[str, Any] | list[Any], str]] = []  # container and pointer
        self._keys: list[str | None] = []  # the key that waits for its value in each open container

    def take(self, event: Any) -> None:
        """Add one event.

        Raises:
            ProblemError: The text uses a feature that is not supported, or is nested too deeply.
        """
        name, line = type(event).__name__.removesuffix("Event"), event.start_mark.line + 1
        is_key = bool(self._open) and isinstance(self._open[-1][0], dict) and self._keys[-1] is None
        if name == "DocumentStart":
            self._documents += 1
        unsupported = (
            (name == "Alias" or getattr(event, "anchor", None), "an anchor or alias (& or *)", "Write the value out."),
            (getattr(event, "tag", None), "a tag (!)", "Delete the tag and write a plain value."),
            (self._documents > 1, "a second document (---)", "Keep one document in the file; delete the line ---."),
            (is_key and name.endswith("Start"), "a key that is not text", "Write the key as one word."),
        )
        for is_used, feature, advice in unsupported:
            if is_used:
                self.refuse(f"The file uses {feature}, which trainproof does not read.", line, advice)
        if name == "Scalar" and is_key:
            self._take_key(event.value, line)
        elif name == "Scalar":
            pointer = self._pointer()
            self._add(self._scalar(event, pointer, line), pointer, line)
        elif name in ("MappingStart", "SequenceStart"):
            container: dict[str, Any] | list[Any] = {} if name == "MappingStart" else []
            pointer = self._pointer()
            self._add(container, pointer, line)
            self._open.append((container, pointer))
            self._keys.append(None)
            if len(self._open) > MAX_LEVELS:
                raise ProblemError([too_deep(self.file, line)])
        elif name in ("MappingEnd", "SequenceEnd"):
            self._open.pop()
            self._keys.pop()

    def refuse(self, what: str, line: int | None, advice: str) -> None:
        """Raise a `ProblemError`."""
        raise ProblemError([problem_of("TP108", file=self.file, line=line, what=what, why=None, next=advice)])

    def _take_key(self, key: str, line: int) -> None:
        container, above = self._open[-1]
        pointer = above + pointer_to([key])
        if key in container:
            self.problems.append(_duplicate_key(key, self.file, pointer, line, self.lines[pointer]))
        self.lines.setdefault(pointer, line)
        self._keys[-1] = key

    def _pointer(self) -> str:
        """Return the pointer of the next value."""
        if not self._open:
            return ""
        container, above = self._open[-1]
        return above + pointer_to([len(container) if isinstance(container, list) else self._keys[-1] or ""])

    def _add(self, value: Any, pointer: str, line: int) -> None:
        self.lines.setdefault(pointer, line)
        if not self._open:
            self.value = value
            return
        container, _ = self._open[-1]
        if isinstance(container, list):
            container.append(value)
        else:
            container[self._keys[-1] or ""] = value
            self._keys[-1] = None

    def _scalar(self, event: Any, pointer: str, line: int) -> Any:
        text = event.value
        if event.style:  # quoted or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        is_float = _FLOAT.fullmatch(text) is not None
        if is_float and _is_finite(text):
            return float(text)
        if is_float or _NOT_FINITE.fullmatch(text):
            self.problems.append(_not_finite(text, self.file, pointer, line))
            return None
        return text


def _not_yaml(text: str, error: Any, *, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    what, advice = "unexpected text", "Check the indentation and colons there."
    if text[mark.index : mark.index + 1] == "\t":
        what, advice = "a tab instead of spaces", "Indent with spaces."
    elif "mapping values are not allowed" in (error.problem or ""):
        what, advice = "a colon inside a value", "Put the value in quotation marks, or start a new line."
    what = f"This is not YAML: {what} at column {mark.column + 1}."
    return problem_of("TP108", file=file, line=mark.line + 1, what=what, why=None, next=advice)


def write_yaml(value: Any) -> str:
    r"""Write a YAML text that `read_yaml` reads back as the same value; keys keep their order.

    Example:
        >>> write_yaml({"name": "1e-3", "optimizer": {"learning_rate": 0.5}})
        "name: '1e-3'\noptimizer:\n  learning_rate: 0.5\n"
    """
    import yaml

    return yaml.dump(value, Dumper=_yaml_dumper(), sort_keys=False, allow_unicode=True)


@cache
def _yaml_dumper() -> Any:
    """Return a dumper that quotes text which would be read as a number, such as `1e-3`; PyYAML's own does not."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def represent(dumper: Any, text: str) -> Any:
        is_plain = text not in _WORDS and not any(form.fullmatch(text) for form in (_INTEGER, _FLOAT, _NOT_FINITE))
        style = "|" if "\n" in text else None if is_plain else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    return Dumper


# Rows


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a JSONL file.

    Attributes:
        values: Valid rows, in order.
        problems: Errors and warnings about the other lines.
        torn_tail: Whether the last line is incomplete and was skipped.
        bytes_read: Offset after the last complete line.
        left_out: Line numbers that gave no row, in order.
    """

    values: Sequence[dict[str, Any]]
    problems: tuple[Problem, ...]
    torn_tail: bool
    bytes_read: int
    left_out: tuple[int, ...] = ()

    def line_of(self, index: int) -> int:
        """Return the line number of `values[index]`."""
        line = 1 + index
        for left_out in self.left_out:
            if left_out > line:
                break
            line += 1
        return line


def read_rows(path: str | Path, kind: str) -> Rows:
    """Read a JSONL file and check each row against the schema of its kind; never raises on its content.

    Blank lines, and the incomplete last line of a run that was killed, are skipped with a warning. Any other invalid
    line is an error.
    """
    reader = _RowReader(str(path), kind)
    try:
        with Path(path).open("rb") as stream, collector_paused():
            size = os.fstat(stream.fileno()).st_size
            if size > LARGEST_ROWS:
                limit = f"at most {LARGEST_ROWS:,} bytes"
                reader.problems.append(too_large(f"The file has {size:,} bytes", limit, file=str(path)))
            else:
                reader.read(stream)
    except OSError as error:
        reader.problems.append(os_error_problem(error, file=str(path)))
    return reader.rows()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector, which doubles the time to build a million dicts."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _RowReader:
    def __init__(self, file: str, kind: str) -> None:
        self.file = file
        self.kind = kind
        self.values: list[dict[str, Any]] = []
        self.problems: list[Problem] = []
        self.torn_tail = False
        self.left_out: list[int] = []
        self.bytes_read = 0
        self.line = 0
        self.blank_lines: list[int] = []
        self.invalid_lines = 0
        self._decoder = _JsonDecoder()
        self._validator = compile_validator(kind)

    def rows(self) -> Rows:
        if self.blank_lines:
            what = f"{quantity(len(self.blank_lines), 'blank line')} skipped."
            self.problems.append(problem_of("TP131", file=self.file, line=self.blank_lines[0], what=what, why=None))
        if (more := self.invalid_lines - MAX_EXPLAINED) > 0:
            stopped = "; what follows them was not read" if more == MAX_COUNTED else ""
            what = f"{quantity(more, 'more line')} of this file {'has' if more == 1 else 'have'} problems{stopped}."
            why = f"Only the first {MAX_EXPLAINED} are explained."
            self.problems.append(problem_of("TP132", file=self.file, what=what, why=why))
        return Rows(
            values=self.values,
            problems=tuple(self.problems),
            torn_tail=self.torn_tail,
            bytes_read=self.bytes_read,
            left_out=tuple(self.left_out),
        )

    def read(self, stream: BinaryIO) -> None:
        head = stream.read(4)
        if detect_utf16(head):
            self.problems += decode(head, file=self.file)[1]
            return
        stream.seek(0)
        lines = stream.readlines(BATCH_BYTES)
        while lines and self.invalid_lines < MAX_EXPLAINED + MAX_COUNTED:
            following = stream.readlines(BATCH_BYTES)
            self._take(lines, is_end=not following)
            lines = following

    def _take(self, lines: list[bytes], *, is_end: bool) -> None:
        values = self._decode(lines)
        if values is not None and not self._decoder.needs_scan and self._validator.are_valid(values):
            self.values += values
            self.line += len(lines)
            self.bytes_read += sum(map(len, lines))
            return
        self._decoder.needs_scan = False
        for index, line in enumerate(lines, start=1):
            self.line += 1
            self.bytes_read += len(line)
            row = self._look_closer(line, is_last=is_end and index == len(lines))
            if row is not None:
                self.values.append(row)
            elif not self.torn_tail:
                self.left_out.append(self.line)
            if self.invalid_lines == MAX_EXPLAINED + MAX_COUNTED:
                return

    def _decode(self, lines: list[bytes]) -> list[Any] | None:
        """Decode lines, or return None if some may be invalid."""
        if max(map(len, lines)) > MAX_ROW_BYTES:
            return None
        try:
            texts = [line.decode() for line in lines]
            decoded = [self._decoder.scan_once(text, 0) for text in texts]
        except (ValueError, StopIteration, RecursionError):
            return None
        for text, (_, end) in zip(texts, decoded, strict=True):
            may_have_surrogates = "\\ud" in text or "\\uD" in text
            if text[end:] != "\n" or may_have_surrogates or text.count("{") + text.count("[") > MAX_LEVELS:
                return None
        return [value for value, _ in decoded]

    def _look_closer(self, line: bytes, *, is_last: bool) -> dict[str, Any] | None:
        """Return the row of a line, or None if it is invalid, and record its problems."""
        if len(line) > MAX_ROW_BYTES:
            what = f"The row has {len(line):,} bytes"
            self._note([too_large(what, f"a row of at most {MAX_ROW_BYTES:,} bytes", file=self.file)])
            return None
        if not line.strip():
            self.blank_lines.append(self.line)
            return None
        may_be_torn = is_last and self.kind in APPENDED
        parsed = parse_json(line.rstrip(b"\r\n"), file=self.file)
        if may_be_torn and not (line.endswith(b"\n") and parsed.is_read):
            self.torn_tail = True
            self.bytes_read -= len(line)
            what = f"The last line is incomplete ({len(line):,} bytes) and was skipped."
            self.problems.append(problem_of("TP130", file=self.file, line=self.line, what=what))
            return None
        problems = list(parsed.problems)
        if parsed.is_read:
            problems += explain_violations(self.kind, parsed.value, file=self.file, lines=unknown_lines)
        self._note(problems)
        return None if problems else parsed.value

    def _note(self, problems: list[Problem]) -> None:
        if problems:
            self.invalid_lines += 1
            if self.invalid_lines <= MAX_EXPLAINED:
                self.problems += [replace(problem, line=self.line) for problem in problems]


# Values of documents and rows

Array = NDArray[np.float64]

SECONDS = "seconds"  # the column made of the field `time`: seconds since 1970


class Columns(dict[str, Array]):
    """The numeric fields of valid metric rows as `[rows]` float64 arrays, each built when it is first used.

    Null, missing fields and invalid dates are NaN.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, name: str) -> Array:
        if name == SECONDS:
            moments = (parse_time(row[TIME]) for row in self._rows)
            self[name] = np.array([math.nan if one is None else one.timestamp() for one in moments], dtype=np.float64)
        elif name in number_names():
            self[name] = column(self._rows, name)
        else:
            raise KeyError(name)
        return self[name]


def column(rows: Sequence[dict[str, Any]], name: str) -> Array:
    """Return one field of every row, `[rows]`; NaN where it is null or missing."""
    return np.array([row.get(name) for row in rows], dtype=np.float64)


def parse_time(text: str) -> datetime | None:
    """Parse a time with offset (RFC 3339), or return None if it is not one or does not exist in the calendar.

    A leap second (`:60`) becomes the second before it.
    """
    try:
        time = datetime.fromisoformat(text.replace(":60", ":59", 1) if ":60" in text else text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def seconds_between(earlier: str, later: str) -> float | None:
    """Return the seconds from the first time to the second, or None if one is not a time."""
    first, second = parse_time(earlier), parse_time(later)
    return None if first is None or second is None else (second - first).total_seconds()


def get_path(document: Mapping[str, Any] | None, *path: str) -> Any:
    """Return the value at a path of keys, or None if it is missing. The document need not be valid."""
    node: Any = document
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def get_str(document: Mapping[str, Any] | None, *path: str) -> str | None:
    """Return the text at a path, or None if it is missing."""
    value = get_path(document, *path)
    return value if isinstance(value, str) else None


def get_number(document: Mapping[str, Any] | None, *path: str) -> float | None:
    """Return the finite number at a path, or None if it is missing."""
    value = get_path(document, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if value.bit_length() < 1024 else None  # larger ones do not fit into a float
    return value if math.isfinite(value) else None


def get_bool(document: Mapping[str, Any] | None, *path: str) -> bool | None:
    """Return the boolean at a path, or None if it is missing."""
    value = get_path(document, *path)
    return value if isinstance(value, bool) else None


def get_objects(document: Mapping[str, Any] | None, *path: str) -> list[Mapping[str, Any]]:
    """Return the objects in the list at a path."""
    value = get_path(document, *path)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
