"""Bytes of any encoding (UTF-16, marks, bare CR, mojibake) to numbered lines; numbers as people and tools print them.

Our own documents are read by `schemas.reading.text`, which refuses what is taken here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.problems import Problem, problem_of
from schemas.reading import UTF8_BOM, other_encoding

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)"
)
"""Pattern of a number: `1,234`, `0.5`, `1e-05`, `nan`."""

_OF_A_WHOLE = 3
"""Decimals that a whole figure is taken to have been written with."""

_OF_SINGLE_PRECISION = 1.2e-7
"""Share by which a number moves when it is kept in 32 bits, as event files do."""

_WHOLE = re.compile(r"[-+]?\d{1,15}")
_NUMBER = re.compile(NUMBER, re.IGNORECASE)


def number_of(text: str) -> int | float | None:
    """Return the number that a text is, a whole one as int; or None if it is not one.

    Example:
        >>> number_of("1,234"), number_of("4e-07"), number_of("twelve")
        (1234, 4e-07, None)
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "")
    return int(plain) if _WHOLE.fullmatch(plain) else float(plain)


def finite(value: float) -> float | None:
    """Return a number that JSON can hold; None for NaN, infinity and whole numbers beyond a float."""
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def decimals(value: float) -> int:
    """Return the decimals with which Python prints a number: 2 for 0.25, 5 for 1e-05, 0 for 3."""
    text = repr(float(value))
    mantissa, _, exponent = text.partition("e")
    fraction = mantissa.partition(".")[2]
    digits = 0 if fraction == "0" else len(fraction)
    return max(0, digits - int(exponent or 0))


def agree(one: float, other: float, *, decimals_stated: int = 0) -> bool:
    """Return whether two figures can be the same number, one of them rounded or cut to fewer decimals.

    Rounding moves a number by half a unit of the last decimal at most; cutting by less than a unit, towards zero. With
    one decimal only rounding counts: cutting would take 0.8 for 0.88, and that is another loss.

    Args:
        one: A figure.
        other: Another one.
        decimals_stated: Decimals that the coarser one has at least: a whole percent is a fraction with two.

    Example:
        >>> agree(4.146, 4.1463695), agree(4.146, 4.1469), agree(4.146, 4.1455), agree(2.0, 1.99996)
        (True, True, True, True)
        >>> agree(0.9, 0.8), agree(0.8, 0.88), agree(4.146, 4.1453), agree(0.9, 0.86, decimals_stated=2)
        (False, False, False, False)
    """
    fewer, more = sorted((one, other), key=_decimals_of_a_figure)
    places = max(_decimals_of_a_figure(fewer), decimals_stated)
    slack = _OF_SINGLE_PRECISION * max(abs(one), abs(other))
    if places > 12 or one == other:
        return abs(one - other) <= slack
    unit = 10.0**-places
    can_be_cut = places > 1 and _decimals_of_a_figure(more) > places
    was_cut = can_be_cut and fewer * more >= 0 and abs(fewer) < abs(more)
    return abs(one - other) <= (1.0 if was_cut else 0.5) * unit + slack


def _decimals_of_a_figure(value: float) -> int:
    """Return the decimals of a figure; a whole one was written with some (2.0000) that its value does not keep."""
    return decimals(value) or _OF_A_WHOLE


_NOT_ASCII = re.compile(r"[^\x00-\x7f]{2,}")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00\x08]")
"""Colours and cursor movements of a terminal, backspaces, NUL bytes."""

_WRONG_READERS = (
    ("cp1252", "Windows-1252"),
    ("mac_roman", "Mac Roman"),
    ("cp437", "code page 437"),
    ("cp850", "code page 850"),
)
"""Encodings that UTF-8 is most often mistaken for, by Python's name and by their own."""

_LONGEST_PIECE = 16
"""Signs of such a piece that are looked at; a single emoji is at most seven of them."""

_MOST_PIECES = 500
"""Different pieces of text beyond ASCII that are looked at in one file."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line, or one of the pieces that bare CRs cut a line into."""

    number: int
    """Line in the file, counted from 1; pieces of one line share it."""
    text: str
    """The text without line end, colours and trailing white space."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """A decoded file."""

    text: str
    """The whole text with LF, CRLF and CR as they were."""
    encoding: str
    """The encoding by its usual name."""
    problems: tuple[Problem, ...]
    """What must be known about the encoding."""

    def lines(self) -> Iterator[LogLine]:
        r"""Yield the lines that are not blank; `a\rb\n` gives two with the number 1."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            for piece in line.split("\r"):
                text = _CONTROL.sub("", piece).rstrip()
                if text.strip():
                    yield LogLine(number=number, text=text)


def read_text(data: bytes, *, file: str) -> Text:
    """Return the text of a file; every sequence of bytes is some text.

    Args:
        data: The file's content.
        file: Its name in problems.
    """
    text, encoding = _decode(data)
    problems = []
    if encoding != "UTF-8":
        what = f"The file is {encoding}."
        problems.append(problem_of("TP622", file=file, what=what))
    problems += _mojibake(text, file)
    return Text(text=text, encoding=encoding, problems=tuple(problems))


def _decode(data: bytes) -> tuple[str, str]:
    """Return text and encoding: byte order mark first, then the pattern of NUL bytes, then UTF-8, then Windows-1252."""
    if data.startswith(UTF8_BOM):
        return data[3:].decode("utf-8", "replace"), "UTF-8 with a byte order mark"
    if wide := other_encoding(data):
        # Without a mark, the first NUL byte is the high half of an ASCII character.
        marked = data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\x00\x00\xfe\xff"
        little = data[:2] == b"\xff\xfe" if marked else data[:1] != b"\x00"
        codec = f"{wide.lower()}-{'le' if little else 'be'}"
        name = f"{wide}, {'little' if little else 'big'} endian"
        return data.decode(codec, "replace").removeprefix("\ufeff"), name
    try:
        return data.decode("utf-8"), "UTF-8"
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), "not UTF-8, read as Windows-1252"


def _mojibake(text: str, file: str) -> Iterator[Problem]:
    """Yield one warning per wrong reader that text went through, with its first piece and what that stood for."""
    known: set[str] = set()
    said: set[str] = set()
    for match in _NOT_ASCII.finditer(text):
        piece = match.group()[:_LONGEST_PIECE]
        if piece in known:
            continue
        known.add(piece)
        if len(known) > _MOST_PIECES:
            return
        reader, meant = _misread(piece)
        if reader and reader not in said:
            said.add(reader)
            what = f"{_quote(piece)} is {_quote(meant)}: UTF-8 that was read as {reader}."
            line = text.count("\n", 0, match.start()) + 1
            yield problem_of("TP621", file=file, what=what, line=line)


def _misread(piece: str) -> tuple[str | None, str]:
    """Return by which wrong reader a piece came about and what it stood for; None where it is what it looks like."""
    for codec, name in _WRONG_READERS:
        for end in range(len(piece), 1, -1):
            try:
                meant = b"".join(_byte(sign, codec) for sign in piece[:end]).decode("utf-8")
            except UnicodeError:
                continue
            if len(meant) < end and meant.isprintable():
                return name, meant
            break
    return None, piece


def _byte(sign: str, codec: str) -> bytes:
    """Return the byte that a wrong reader showed as this sign; Windows leaves five bytes as control characters."""
    if "\x80" <= sign <= "\x9f":
        return bytes([ord(sign)])
    return sign.encode(codec)


def _quote(text: str) -> str:
    return f"“{text[:12]}…”" if len(text) > 12 else f"“{text}”"
