"""Configurations as trainproof writes them: groups of keys, one value on a line. Ten times as fast as a YAML reader.

Also what an unquoted word means by the core schema of YAML 1.2: null, a truth value, a number or text.

`read_plain` is a fast yes, as `row_types` is for rows: text with anything else in it (a comment, a list, an escape) is
for `yaml_text`. A test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any

from schemas.reading.limits import MOST_DIGITS
from schemas.reading.positions import is_finite

INTEGER = re.compile(rf"[-+]?[0-9]{{1,{MOST_DIGITS}}}|0x[0-9a-fA-F]{{1,64}}|0o[0-7]{{1,64}}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_LINE = re.compile(
    r"(?P<indent> *)(?P<key>[A-Za-z_][A-Za-z0-9_]*):"
    r"(?: (?:(?P<word>-?[A-Za-z0-9_./+][A-Za-z0-9_./+-]*)|'(?P<quoted>[ -&(-~]*)'))?"
)


LONGEST = 1 << 16
"""Characters; what is longer was not written by trainproof."""


def read_plain(text: str) -> tuple[dict[str, Any], dict[str, int]] | None:
    r"""Return the value of a text and the line of each value by pointer; None where a YAML reader is needed.

    Example:
        >>> read_plain("name: a\nbatch:\n  size: 8\n")
        ({'name': 'a', 'batch': {'size': 8}}, {'': 1, '/name': 1, '/batch': 2, '/batch/size': 3})
    """
    if len(text) > LONGEST:
        return None
    root: dict[str, Any] = {}
    lines = {"": 1}
    groups: list[tuple[int, dict[str, Any], str]] = [(0, root, "")]
    opened: tuple[dict[str, Any], str, str] | None = None
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        indent = len(match["indent"])
        if indent > groups[-1][0] and opened:
            parent, name, pointer = opened
            parent[name] = {}
            groups.append((indent, parent[name], pointer))
        while indent < groups[-1][0]:
            groups.pop()
        level, group, above = groups[-1]
        key = match["key"]
        if indent != level or key in group:
            return None
        lines[f"{above}/{key}"] = number
        opened = None
        if match["quoted"] is not None:
            group[key] = match["quoted"]
        elif match["word"] is not None:
            try:
                group[key] = value_of(match["word"])
            except NotFiniteError:
                return None
        else:
            group[key] = None
            opened = (group, key, f"{above}/{key}")
    return root, lines


class NotFiniteError(ValueError):
    """The word is a number that JSON cannot hold: `.nan`, `.inf` or beyond 1.8e308."""


def value_of(word: str) -> Any:
    """Return the value of an unquoted word: `1e-3` is 0.001, `0x10` is 16, `no` and `12:30` are text.

    Raises:
        NotFiniteError: It is a number, and not a finite one.
    """
    if word in WORDS:
        return WORDS[word]
    if INTEGER.fullmatch(word):
        return int(word, 0) if word[:2] in ("0x", "0o") else int(word)
    is_float = FLOAT.fullmatch(word) is not None
    if is_float and is_finite(word):
        return float(word)
    if is_float or NOT_FINITE.fullmatch(word):
        raise NotFiniteError(word)
    return word


def is_plain_text(text: str) -> bool:
    """Return whether a scalar without quotation marks is text: not a number, a truth value or null."""
    return text not in WORDS and not any(form.fullmatch(text) for form in (INTEGER, FLOAT, NOT_FINITE))
