"""What an unquoted word of YAML is, by the core schema of YAML 1.2: null, a truth value, a number or text."""

from __future__ import annotations

import re
from typing import Any

from schemas.reading.positions import MOST_DIGITS, is_finite

INTEGER = re.compile(rf"[-+]?[0-9]{{1,{MOST_DIGITS}}}|0x[0-9a-fA-F]{{1,64}}|0o[0-7]{{1,64}}")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


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
