"""Text from outside on a terminal and in reports: a hostile file must not control them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def visible(text: str) -> str:
    r"""Return the text with what cannot be seen, turns the direction of reading or ends a line written as an escape.

    Spaces of any width stay. `"a\x1b[2Jb"` becomes `a\x1b[2Jb` in eight signs that a terminal does not obey.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or _is_space(sign) else _escape(sign) for sign in text)


def as_lines(lines: Iterable[object]) -> str:
    """Return lines as a terminal shows them, each made visible, so that a value cannot start a new line."""
    return "".join(f"{visible(str(line))}\n" for line in lines)


def _is_space(sign: str) -> bool:
    return unicodedata.category(sign) == "Zs"


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")
