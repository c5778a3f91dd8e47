"""Text from outside, made harmless: run names, notes, logs and model outputs are written by strangers.

Everything shown by a Markdown command of the page goes through `plain`; everything shown as HTML through `html.escape`.
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
"""Letters of texts whose difference is looked for; beyond, it takes longer than a reader waits."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~$:^=.-])")
_LONGEST_SECRET = 8192
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(text: str) -> str:
    r"""Return text that a Markdown renderer shows as it stands, on one line: `*a*` becomes `\*a\*`.

    Colons, dollars and brackets are escaped too, since `:red[…]`, `:material/…:` and `$…$` mean something there.
    """
    return _MARKDOWN.sub(r"\\\1", strip_invisible(text).replace("\n", " "))


def findable(names: Iterable[str]) -> list[str]:
    """Return dotted names in order, each behind those that its own end contains, so that a box finds these first.

    Example:
        >>> findable(["optimizer.final_learning_rate_fraction", "optimizer.learning_rate", "seed"])
        ['optimizer.learning_rate', 'seed', 'optimizer.final_learning_rate_fraction']
    """
    ends = {name: name.rpartition(".")[2] for name in names}
    return sorted(ends, key=lambda name: (sum(end in ends[name] for end in set(ends.values())), name))


def glimpse(text: str, length: int) -> str:
    """Return at most `length` characters of the text with keys and passwords masked, however long the text is."""
    # One that begins within what is shown is found whole; what lies further on is not even looked at.
    return shorten(hide_secrets(text[: length + _LONGEST_SECRET]), length)


def both_ends(text: str, length: int) -> str:
    """Return beginning and end of a text, at most `length` of its characters, with keys and passwords masked.

    Between them stands how many characters were left out.
    """
    if len(text) <= length:
        return hide_secrets(text)
    first, last = length // 2, length - length // 2
    beginning, end = (
        hide_secrets(text[: first + _LONGEST_SECRET])[:first],
        hide_secrets(text[-last - _LONGEST_SECRET :])[-last:],
    )
    return f"{beginning}\n… {len(text) - length:,} characters left out …\n{end}"


def shorten(text: str, length: int) -> str:
    """Return at most `length` characters of the text, with an ellipsis where some were left out."""
    return text if len(text) <= length else text[: length - 1] + "…"


def csv_cell(value: object) -> object:
    """Return a table cell that a spreadsheet takes as text: `=1+1` becomes `'=1+1`, half a character its code."""
    if not isinstance(value, str):
        return value
    whole = value.encode("utf-8", "backslashreplace").decode()
    return f"'{whole}" if whole.startswith(_FORMULA) else whole


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV, numbers in full; None and NaN give an empty cell."""
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
    if max(len(expected), len(got)) > LONGEST:
        yield "missing", expected
        yield "added", got
        return
    for tag, start, end, other_start, other_end in SequenceMatcher(a=expected, b=got, autojunk=False).get_opcodes():
        if tag == "equal":
            yield "same", expected[start:end]
            continue
        if end > start:
            yield "missing", expected[start:end]
        if other_end > other_start:
            yield "added", got[other_start:other_end]
