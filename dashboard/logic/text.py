"""Text from outside, made harmless: run names, notes, logs and model outputs are written by strangers.

Everything shown by a Markdown command of the page goes through `plain`; everything shown as HTML through `html.escape`.
"""

from __future__ import annotations

import re
import unicodedata

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~$:^=.-])")
_SECRET = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
    r"|((?:api[_-]?key|token|password|secret)[\"']?\s*[=:]\s*[\"']?)([^\s\"',;]{8,})",
    re.IGNORECASE,
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(text: str) -> str:
    r"""Return text that a Markdown renderer shows as it stands, on one line: `*a*` becomes `\*a\*`.

    Colons, dollars and brackets are escaped too, since `:red[…]`, `:material/…:` and `$…$` mean something there.
    """
    return _MARKDOWN.sub(r"\\\1", visible(text).replace("\n", " "))


def visible(text: str) -> str:
    """Return the text without characters that hide or reorder what stands beside them (control, format, surrogate)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in {"Cc", "Cf", "Cs"}
    )


def masked(text: str) -> str:
    """Return the text with what looks like a key or a password replaced: `token=abcdefgh…` becomes `token=[hidden]`."""
    return _SECRET.sub(lambda found: f"{found[2] or ''}[hidden]", text)


def shortened(text: str, length: int) -> str:
    """Return at most `length` characters of the text, with an ellipsis where some were left out."""
    return text if len(text) <= length else text[: length - 1] + "…"


def csv_cell(value: object) -> object:
    """Return a table cell that a spreadsheet takes as text: `=1+1` becomes `'=1+1`, half a character its code."""
    if not isinstance(value, str):
        return value
    whole = value.encode("utf-8", "backslashreplace").decode()
    return f"'{whole}" if whole.startswith(_FORMULA) else whole
