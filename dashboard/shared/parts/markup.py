"""HTML that is safe by construction: every piece of text is escaped where it enters, and only here.

Text of runs never goes into a Markdown command, since Markdown there knows links, colours, icons and formulas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from html import escape
from typing import Any

import streamlit as st

from dashboard.shared.tables.headline import HeadlineFigure
from dashboard.shared.words.grades import UNKNOWN, Sign
from dashboard.shared.words.text import difference
from dashboard.shared.words.times import date_and_time
from evidence.bundle.secrets import strip_invisible

_CODE = re.compile("`([^`]+)`")
_WORD = 22
"""Cells of a table up to this length stay on one line."""


def safe(text: object) -> str:
    """Return text as HTML that shows it as it stands."""
    return escape(strip_invisible(str(text)), quote=True)


def sign(signs: Mapping[str, Sign], word: str | None, beside: str = "") -> str:
    """Return a grade or a status as a small label: symbol, word, what stands beside it, and its meaning on hover."""
    found, said = signs.get(word or "", UNKNOWN), f"{word or 'unknown'}{f' · {beside}' if beside else ''}"
    return (
        f'<span class="tp-sign tp-{found.tone}" title="{safe(found.meaning)}">'
        f'<span aria-hidden="true">{found.symbol}</span>{safe(said)}</span>'
    )


class Safe(str):
    """HTML made of `safe` parts, which a table takes as it is."""

    __slots__ = ()


def words(text: str) -> Safe:
    """Return words of ours as HTML, with what they set in backticks (a command, a file) as code."""
    return Safe(_CODE.sub(r"<code>\1</code>", safe(text)))


def changes(expected: str, got: str) -> Safe:
    """Return how texts differ: what only the first has is struck through, what only the second has underlined."""
    tags = {"same": ("", ""), "missing": ("<del>", "</del>"), "added": ("<ins>", "</ins>")}
    pieces = difference(strip_invisible(expected), strip_invisible(got))
    inside = "".join(f"{tags[kind][0]}{safe(text)}{tags[kind][1]}" for kind, text in pieces)
    return Safe(f'<span class="tp-changes">{inside}</span>')


def when(stated: str | None, zone: tzinfo) -> Safe:
    """Return a stated time in the reader's zone, in UTC on hover; a dash for none."""
    return Safe(f'<span title="{safe(date_and_time(stated))} UTC">{safe(date_and_time(stated, zone))}</span>')


def heading(title: str, *, signs: str = "", lines: Sequence[str] = ()) -> None:
    """Draw a page's heading.

    `signs` and `lines` are HTML made of `safe` parts.
    """
    below = "".join(f'<p class="tp-sub">{line}</p>' for line in lines if line)
    st.html(f'<div class="tp-head"><h1>{safe(title)}</h1>{signs}</div>{below}')


def step(number: int, title: str) -> None:
    """Draw the title of one step of several."""
    st.html(f'<p class="tp-step"><b>{number}</b>{safe(title)}</p>')


def note(text: str) -> None:
    """Draw a quiet line of any text."""
    st.html(f'<p class="tp-sub">{safe(text)}</p>')


def draw_changed(text: str) -> None:
    """Draw an amber line: what is below is not what is on disk."""
    st.html(f'<p class="tp-changed" role="status">{safe(text)}</p>')


def empty(title: str, *lines: str) -> None:
    """Draw what stands where there is nothing yet: what this is, and what to do."""
    st.html(f'<div class="tp-empty"><h2>{safe(title)}</h2>{"".join(f"<p>{safe(line)}</p>" for line in lines)}</div>')


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    marked: Iterable[int] = (),
    quiet: Iterable[int] = (),
) -> None:
    """Draw a small table of any text.

    A cell that is `Safe` is HTML; columns of numbers are right-aligned. What marks a row, its text must state too.
    """
    right = set(numbers)
    kinds = dict.fromkeys(marked, "tp-marked") | dict.fromkeys(quiet, "tp-dim")
    top = "".join(
        f'<th scope="col" class="{"tp-number" if index in right else ""}">{safe(text)}</th>'
        for index, text in enumerate(head)
    )
    body = "".join(
        f'<tr class="{kinds.get(number, "")}">'
        + "".join(_cell(cell, is_number=index in right) for index, cell in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    inside = f'<table class="tp-table"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    # A part that scrolls must be reached with the keyboard, and states what it is.
    st.html(f'<div class="tp-scroll" tabindex="0" role="group" aria-label="{safe(", ".join(head))}">{inside}</div>')


def bullets(title: str, lines: Iterable[str]) -> None:
    """Draw a short list of our own words under a line of any text."""
    items = "".join(f"<li>{words(line)}</li>" for line in lines)
    st.html(f'<p class="tp-sub"><b>{safe(title)}</b></p><ul class="tp-list">{items}</ul>')


def _cell(text: str, *, is_number: bool) -> str:
    if isinstance(text, Safe):
        return f"<td>{text}</td>"
    kind = "tp-number" if is_number else "tp-word" if len(text) <= _WORD else ""
    return f'<td class="{kind}">{safe(text)}</td>'


def download(label: str, data: Any, name: str, *, mime: str | None = None, **more: Any) -> None:
    """Draw a button that gives a file of this name; a function as `data` is called when it is pressed."""
    shared: Any = {"icon": ":material/download:", "on_click": "ignore"} | more
    st.download_button(label, data=data, file_name=name, mime=mime, **shared)


def figures(found: Iterable[HeadlineFigure]) -> None:
    """Draw headline figures side by side as far as the width allows: label, value, detail."""
    cells = "".join(
        f"<div><dt>{safe(one.label)}</dt><dd>{safe(one.value)}<small>{safe(one.detail)}</small></dd></div>"
        for one in found
    )
    st.html(f'<dl class="tp-figures">{cells}</dl>')
