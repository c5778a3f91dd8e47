"""Make text from outside harmless: run names, notes, logs and model outputs are written by strangers.

Text in a Markdown command of Streamlit goes through `plain`; text in HTML goes through `html.escape`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from evidence.bundle.secrets import hide_secrets, strip_invisible

Kind = Literal["same", "missing", "added"]
LONGEST = 2000
"""Letters up to which the difference of two texts is computed; it takes quadratic time."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~$:^=.-])")
_LONGEST_SECRET = 8192
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(text: str) -> str:
    r"""Escape text for Markdown, on one line: `*a*` becomes `\*a\*`.

    Colons, dollars and brackets are escaped too: Streamlit gives `:red[…]`, `:material/…:` and `$…$` a meaning.
    """
    return _MARKDOWN.sub(r"\\\1", strip_invisible(text).replace("\n", " "))


def findable(names: Iterable[str]) -> list[str]:
    """Sort dotted names for a select box, so that a last part comes before longer ones that contain it.

    Example:
        >>> findable(["optimizer.final_learning_rate_fraction", "optimizer.learning_rate", "seed"])
        ['optimizer.learning_rate', 'seed', 'optimizer.final_learning_rate_fraction']
    """
    ends = {name: name.rpartition(".")[2] for name in names}
    return sorted(ends, key=lambda name: (sum(end in ends[name] for end in set(ends.values())), name))


def shorten(text: str, length: int) -> str:
    """Return at most `length` characters, the last one an ellipsis if the text is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def glimpse(text: str, length: int) -> str:
    """Return the first `length` characters with secrets masked; the rest of a long text is not searched."""
    # A secret that begins in the part that is shown must be seen whole to be recognized.
    return shorten(hide_secrets(text[: length + _LONGEST_SECRET]), length)


def both_ends(text: str, length: int) -> str:
    """Return `length` characters from the beginning and the end of a text, with secrets masked."""
    if len(text) <= length:
        return hide_secrets(text)
    first, last = length // 2, length - length // 2
    beginning = hide_secrets(text[: first + _LONGEST_SECRET])[:first]
    end = hide_secrets(text[-last - _LONGEST_SECRET :])[-last:]
    return f"{beginning}\n… {len(text) - length:,} characters left out …\n{end}"


def csv_cell(value: object) -> object:
    """Return a cell that a spreadsheet does not take for a formula: `=1+1` becomes `'=1+1`."""
    if not isinstance(value, str):
        return value
    whole = value.encode("utf-8", "backslashreplace").decode()
    return f"'{whole}" if whole.startswith(_FORMULA) else whole


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV without formulas; None and NaN give an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_cell(cell) for cell in head])
    writer.writerows([("" if value is None or value != value else csv_cell(value)) for value in row] for row in rows)
    return out.getvalue()


def difference(expected: str, got: str) -> Iterator[tuple[Kind, str]]:
    """Yield the pieces of two texts in reading order.

    For `118 km` and `181 km`: `("missing", "1")`, `("same", "18")`, `("added", "1")`, `("same", " km")`. Texts of more
    than `LONGEST` letters are one piece each, unless they are equal.
    """
    if expected == got:
        yield "same", expected
        return
    whole = [("replace", 0, len(expected), 0, len(got))]
    is_long = max(len(expected), len(got)) > LONGEST
    pieces = whole if is_long else SequenceMatcher(a=expected, b=got, autojunk=False).get_opcodes()
    for tag, start, end, other_start, other_end in pieces:
        if tag == "equal":
            yield "same", expected[start:end]
            continue
        if end > start:
            yield "missing", expected[start:end]
        if other_end > other_start:
            yield "added", got[other_start:other_end]
